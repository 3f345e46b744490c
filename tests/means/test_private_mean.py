import contextlib
import dataclasses
import math
import re

import numpy as np
import pytest

import userdp
from userdp.errors import InvalidInputError, NotConcentratedError, PrivacyWarning, TooFewUsersError
from userdp.means import mean_shares, private_mean
from userdp.means.private_mean import distances_apart
from userdp.means.spread import ALL_BINS, histogram_event
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy.budget import Budget

RADIUS = histogram_event("radius", 0.05, 2 * len(ALL_BINS))


def table(n=2_000, m=10, d=2, centre=40.0, seed=0):
    rng = np.random.default_rng(seed)
    own = rng.normal(centre, 1.0, size=(n, 1, d))
    return (own + rng.normal(size=(n, m, d))).reshape(n * m, d), np.repeat(np.arange(n), m)


def test_no_radius_is_needed_at_any_location_or_scale():
    for centre, scale in [(0.0, 1.0), (1e6, 1.0), (0.0, 1e-6), (-3.0, 1e9)]:
        X, ids = table()
        release = userdp.mean((X - 40) * scale + centre, groups=ids, epsilon=1.0, delta=1e-6, random_state=1)
        assert np.abs(release.value - centre).max() < 0.3 * scale
        assert release.noise_std.max() < 0.1 * scale
        assert [spend.name for spend in release.privacy.spent][:2] == ["units", "radius"]


def test_locating_then_clipping_is_one_composition():
    X, ids = table()
    located = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, random_state=1).privacy
    names = [spend.name for spend in located.spent]
    gated = ["concentration gate", "gate passes in error", "centre"]
    assert names == ["units", "radius", "second centre", "clip radius", "mean", *gated]
    assert located.spent[4].mu > 2 * located.spent[-1].mu


@pytest.mark.parametrize(("d", "times"), [(1, 2.5), (8, 1.5), (100, 1.3)])
def test_error_is_near_that_of_clipping_into_the_best_ball(d, times):
    """Root mean squared error over 20 runs, against the ball around the exact mean of least noise^2 + excess^2."""
    n = 4_000
    x = np.random.default_rng(0).normal(100.0, 1.0, size=(n, d))
    truth = x.mean(axis=0)
    distances = np.linalg.norm(x - truth, axis=1)
    radii = np.quantile(distances, np.linspace(0.5, 1, 50))
    noise = np.sqrt(d) * 2 * radii / n / userdp.privacy.mu_from_budget(1.0, 1e-6)
    best = noise[
        np.argmin(
            [a**2 + np.maximum(distances - r, 0).mean() ** 2 for a, r in zip(noise, radii, strict=True)]
        )
    ]
    errors = [
        np.sum(
            (userdp.mean(x, groups=np.arange(n), epsilon=1.0, delta=1e-6, random_state=s).value - truth) ** 2
        )
        for s in range(20)
    ]
    assert np.sqrt(np.mean(errors)) < times * best


def test_high_dimension_takes_the_concentrated_mean_alone():
    x = np.random.default_rng(0).normal(3.0, 1.0, size=(400, 2_000))
    release = userdp.mean(x, groups=np.arange(400), epsilon=1.0, delta=1e-6, random_state=0)
    assert release.privacy.spent[0].name == "radius"
    assert "clip radius" not in str(release.privacy)


def test_users_who_agree_exactly_do_not_hide_the_others():
    """Seven users in ten at 0, three at 1: most pairs agree, and the mean is still 0.3."""
    x = (np.arange(4_000) % 10 < 3).astype(float)[:, None]
    release = userdp.mean(x, groups=np.arange(4_000), epsilon=1.0, delta=1e-6, random_state=0)
    assert abs(release.value[0] - 0.3) < 0.05


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: (rng.random((n, 1)) < 0.5) * 1.0,
        lambda rng, n: (rng.random((n, 1)) < 0.1) * 1.0,
        lambda rng, n: np.eye(5)[rng.choice(5, n, p=[0.6, 0.2, 0.1, 0.06, 0.04])],
        lambda rng, n: rng.poisson(0.2, (n, 1)) * 1.0,
        lambda rng, n: rng.integers(1, 6, (n, 3)) * 1.0,
    ],
    ids=["a flag", "a rarer flag", "categories", "small counts", "answers from 1 to 5"],
)
def test_flags_categories_and_whole_numbers_are_answered_and_no_minority_is_cut_off(draw):
    """Their distances are few and far apart, and may lie at the very end of a bin; against a ball that holds all."""
    n = 2_000
    x = draw(np.random.default_rng(0), n)
    truth, d = x.mean(axis=0), x.shape[1]
    mu = Budget(1.0, 1e-6)
    all_of_them = (
        2 * np.linalg.norm(x - truth, axis=1).max() / (n * mean_shares.shares(n, d, mu).mu) * np.sqrt(d)
    )
    errors = [
        np.linalg.norm(
            userdp.mean(x, groups=np.arange(n), epsilon=1.0, delta=1e-6, random_state=seed).value - truth
        )
        for seed in range(12)
    ]
    assert np.sqrt(np.mean(np.square(errors))) < 2.2 * all_of_them


def test_a_given_radius_spends_nothing_on_finding_one():
    X, ids = table()
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, radius=9.0, random_state=1)
    assert release.radius == 9.0
    assert "radius" not in [spend.name for spend in release.privacy.spent]


def test_every_user_counts_once():
    n = 2_000
    X = np.concatenate([np.zeros((n, 1)), np.full((50_000, 1), 5.0)])
    ids = np.concatenate([np.arange(n), np.zeros(50_000, int)])
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, radius=6.0, random_state=0)
    assert abs(release.value[0]) < 0.2


def test_one_user_touches_one_pair(monkeypatch):
    """Whatever the matching, replacing a user changes at most one of the distances that the histogram sees."""
    seen = []
    law = private_mean.distance_law

    def watched(distances, *rest, finest):
        seen.append(np.stack([distances, finest], axis=1))
        return law(distances, *rest, finest=finest)

    monkeypatch.setattr(private_mean, "distance_law", watched)
    x = np.random.default_rng(0).normal(size=(11, 2))
    changes = []
    for seed in range(50):
        y = x.copy()
        y[seed % 11] = 1e3
        for vectors in (x, y):
            with contextlib.suppress(NotConcentratedError):
                distances_apart(vectors, RADIUS, SeededNoise(seed))
        one, other = seen[-2:]
        assert len(one) == 5
        changes.append(np.count_nonzero((one != other).any(axis=1)))
    assert max(changes) == 1


def test_radius_follows_the_spread():
    for spread in (1e-3, 1.0, 1e5):
        x = np.random.default_rng(0).normal(7.0, spread, size=(4_000, 1))
        distance = distances_apart(x, RADIUS, SeededNoise(0)).quantile(0.5)
        assert 0.7 * spread < distance < 1.3 * spread  # the median of |N(0, 2)| is 0.95


def test_radius_survives_nulls_and_wild_users():
    x = np.random.default_rng(0).normal(size=(4_000, 2))
    x[:900] = np.nan
    x[100:150] = 1e308
    x[150:200] = -1e308
    assert distances_apart(x, RADIUS, SeededNoise(0)).quantile(0.5) < 4


@pytest.mark.parametrize(
    ("n", "d", "epsilon"), [(500, 4, 0.1), (500, 64, 0.3), (20, 4, 9.0), (500, 4, 1.0), (2_000, 64, 0.2)]
)
def test_an_answer_is_never_far_off(n, d, epsilon):
    """Whatever is too few users for the budget is refused; nothing is released at a radius that noise picked."""
    x = np.random.default_rng(0).normal(5.0, 1.0, size=(n, d))
    for seed in range(20):
        try:
            release = userdp.mean(x, groups=np.arange(n), epsilon=epsilon, delta=1e-6, random_state=seed)
        except (TooFewUsersError, NotConcentratedError):
            continue
        assert np.linalg.norm(release.value - 5.0) < 5 * np.sqrt(d)


def test_far_from_zero_the_place_does_not_matter():
    x = np.random.default_rng(0).normal(0.0, 1.0, size=(2_000, 8))
    near, far = (
        userdp.mean(x + shift, groups=np.arange(2_000), epsilon=1.0, delta=1e-6, random_state=3).value - shift
        for shift in (0.0, 2.0**20)
    )
    assert np.abs(near - far).max() < 1e-3


def test_secure_noise_is_the_default():
    X, ids = table()
    first, second = (userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6) for _ in range(2))
    assert not first.privacy.seeded
    assert (first.value != second.value).all()


def test_a_seed_repeats_and_is_marked():
    X, ids = table()
    first, second = (userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, random_state=4) for _ in range(2))
    assert (first.value == second.value).all()
    assert first.privacy.seeded


def test_null_users_stay_in_n():
    X, ids = table()
    X[0] = np.nan
    X[15] = np.inf
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, random_state=0)
    assert release.privacy.n_users == 2_000


@pytest.mark.parametrize("wild", [10**400, "text", None, float("nan"), np.longdouble("1e4000"), 1 + 2j])
def test_a_wild_value_makes_its_user_null_without_a_word(wild):
    X, ids = table(n=600)
    X = X.astype(object)
    X[7, 1] = wild
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.isfinite(release.value).all()
    release = userdp.mean(X.tolist(), groups=ids, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.isfinite(release.value).all()


def test_min_items_makes_small_users_null():
    X, ids = table()
    X = np.vstack([X, np.full((10, 2), 1e12)])
    ids = np.concatenate([ids, np.arange(10) + 5_000])
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, min_items=2, random_state=0)
    assert np.abs(release.value - 40).max() < 1


def test_the_release_holds_nothing_unreleased():
    X, ids = table()
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, random_state=0)
    fields = {field.name for field in dataclasses.fields(release)}
    assert fields == {"value", "noise_std", "radius", "units", "privacy", "halted"}
    assert vars(release).keys() == fields


def good():
    X, ids = table(n=600)
    return {"X": X, "groups": ids, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"groups": None}, "groups is missing"),
        ({"groups": np.arange(10)}, "6000 rows, 10 ids"),
        ({"groups": [None] * 6_000}, "null ids"),
        ({"groups": np.full(6_000, np.nan)}, "null ids"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"delta": 0.0}, "delta must"),
        ({"delta": 1.0}, "delta must"),
        ({"radius": 0.0}, "radius must be"),
        ({"radius": math.nan}, "radius must be"),
        ({"radius": "1"}, "radius must be"),
        ({"random_state": -1}, "a seed must be"),
        ({"min_items": 0}, "min_items"),
        ({"X": np.zeros(6_000)}, "X must have shape"),
        ({"X": np.zeros((0, 2))}, "X must have shape"),
        ({"X": np.full((6_000, 1), "text")}, "X must be numeric"),
        ({"random_state": "now"}, "random_state"),
    ],
)
def test_bad_input_is_refused_before_any_noise_is_drawn(monkeypatch, change, says):
    monkeypatch.setattr("userdp.mechanisms.noise._draw", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(InvalidInputError, match=says):
        userdp.mean(**{**good(), **change})


def test_too_few_users_is_refused_before_any_noise_is_drawn(monkeypatch):
    monkeypatch.setattr("userdp.mechanisms.noise._draw", lambda *_: pytest.fail("noise was drawn"))
    for n, epsilon in ((20, 1.0), (20, 9.0), (500, 0.1)):
        X, ids = table(n=n)
        with pytest.raises(TooFewUsersError, match=rf"{n} users are too few .* or a radius") as refused:
            userdp.mean(X, groups=ids, epsilon=epsilon, delta=1e-6)
        enough = int(re.search(r"at least (\d+)", str(refused.value)).group(1))
        assert mean_shares.shares(enough, 2, Budget(epsilon, 1e-6)).pairs > 0
        with pytest.raises(TooFewUsersError):
            mean_shares.shares(enough - 1, 2, Budget(epsilon, 1e-6))


def test_large_epsilon_warns():
    with pytest.warns(PrivacyWarning, match="next to nothing"):
        userdp.mean(**{**good(), "epsilon": 12.0}, random_state=0)


def test_scattered_users_with_a_radius_too_small():
    with pytest.raises(NotConcentratedError, match="larger radius"):
        userdp.mean(**good(), radius=1e-3, random_state=0)


class RecordingNoise(SeededNoise):
    """Seeded noise that notes what it was asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.asked = []

    def discrete_gaussian(self, scale, size):
        self.asked.append(("gaussian", scale))
        return super().discrete_gaussian(scale, size)

    def geometric(self, scale, size):
        self.asked.append(("geometric", scale))
        return super().geometric(scale, size)


@pytest.mark.parametrize(("n", "d", "radius"), [(2_000, 2, None), (2_000, 400, None), (500, 2, 6.0)])
def test_every_draw_is_in_the_statement_at_the_scale_it_pays_for(n, d, radius):
    X, ids = table(n=n, d=d, m=1)
    noise = RecordingNoise(0)
    statement = userdp.mean(X, groups=ids, epsilon=4.0, delta=1e-6, radius=radius, random_state=noise).privacy
    gaussian = [spend for spend in statement.spent if spend.mu]
    scales = [scale for law, scale in noise.asked if law == "gaussian"]
    assert all(law == "gaussian" for law, _ in noise.asked)
    assert len(gaussian) == len(scales)
    # A histogram's counts have sensitivity 1024 sqrt(2) units, those of d columns sqrt(d) times as much.
    sensitivities = {name: 1024 * math.sqrt(2) for name in ("radius", "clip radius")}
    sensitivities["units"] = 1024 * math.sqrt(2 * d)
    for spend in gaussian:
        if spend.name in sensitivities:
            mus = [sensitivities[spend.name] / scale for scale in scales]
            assert any(math.isclose(mu, spend.mu, rel_tol=1e-3) for mu in mus)
    # The index has sensitivity 1024 units; its noise is that of its share.
    gate = next(spend.mu for spend in statement.spent if spend.name == "concentration gate")
    assert any(math.isclose(1024 / scale, gate, rel_tol=1e-3) for scale in scales)


@pytest.mark.parametrize("place", [5.0, 0.0, -1e9])
@pytest.mark.parametrize("others", [0.0, 0.01, 0.2])
def test_users_who_agree_in_every_digit(place, others):
    """Nobody could be more concentrated."""
    rng = np.random.default_rng(0)
    x = np.full((3_000, 2), place)
    x[rng.random(3_000) < others] += max(abs(place), 1.0)
    release = userdp.mean(x, groups=np.arange(3_000), epsilon=1.0, delta=1e-6, random_state=1)
    error = np.abs(release.value - x.mean(axis=0)).max() / max(abs(place), 1.0)
    assert error < (0.25 if others else 1e-9)
