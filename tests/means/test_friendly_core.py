"""The friendly core, attacked with neighbouring data sets at radius 1."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

from tests.means.neighbours import Pair, at_random, by_hand, climb, replace_first
from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means import FriendlyCoreMean
from userdp.means.friendly_core import _count_sensitivity, _resolution, core_sensitivity
from userdp.means.friends import friend_counts, ramp_numerators, ramp_weights, weighted_mean
from userdp.means.sensitivity import ramp_start
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import PureEvent, delta_of

BUDGET = Budget(1.0, 1e-6)
PAIRS = [*by_hand(), *at_random(np.random.default_rng(0), 800)]


def weights_of(x):
    return ramp_weights(friend_counts(x, 1.0), ramp_start(len(x)), len(x))


def numerator_of(x):
    return int(ramp_numerators(friend_counts(x, 1.0), ramp_start(len(x)), len(x)).sum())


def use_of_bound(pair: Pair) -> float:
    """Share of Delta(max(W, W')) by which the mean moves."""
    w, w_2 = weights_of(pair.one), weights_of(pair.other)
    bound = core_sensitivity(max(w.sum(), w_2.sum()), len(w), 1.0)
    if bound == math.inf:
        return 0.0
    return float(np.linalg.norm(weighted_mean(pair.one, w) - weighted_mean(pair.other, w_2))) / bound


def test_the_mean_moves_within_the_bound():
    uses = [use_of_bound(pair) for pair in PAIRS]
    assert 0.45 < max(uses) <= 1
    for pair in PAIRS:
        w, w_2 = weights_of(pair.one), weights_of(pair.other)
        L = (len(w) - 1) / (len(w) - ramp_start(len(w)))
        assert np.abs(w - w_2)[1:].sum() <= L * (1 + 1e-12)
        if core_sensitivity(max(w.sum(), w_2.sum()), len(w), 1.0) < math.inf:
            assert min(w.sum(), w_2.sum()) > 0, "a mean of nothing is not within any bound"


@pytest.mark.parametrize(("n", "d"), [(10, 1), (16, 2), (30, 1)])
def test_the_bound_holds_under_attack(n, d):
    rng = np.random.default_rng(n)
    crowd = rng.normal(size=(n, d)) * 0.2
    crowd[0, 0] -= 0.6
    start = replace_first("start", crowd, crowd[0] + 1.2 * np.eye(1, d)[0])
    _, use = climb(use_of_bound, start, rng, steps=500)
    assert 0.1 < use <= 1


def test_the_count_s_sensitivity_is_attained():
    """n equal users, one moved away: everybody loses a friend. Cutting it by a tenth would fail here."""
    worst = 0.0
    for pair in PAIRS:
        n = len(pair.one)
        moved = abs(numerator_of(pair.one) - numerator_of(pair.other))
        assert _resolution(n) * moved <= _count_sensitivity(n), pair.name
        worst = max(worst, _resolution(n) * moved / _count_sensitivity(n))
    assert worst == 1


def test_formula():
    n, lo, W = 1_001, 501, 800.0
    L = (n - 1) / (n - lo)
    V = W - 1 - L
    assert core_sensitivity(W, n, 3.0) == pytest.approx(3 * (2 + L + (n - V) / V) / W)
    assert core_sensitivity(20.0, n, 3.0) == pytest.approx(3 * (2 + 2 * L) / 20)
    assert core_sensitivity(1 + L, n, 3.0) == math.inf
    assert core_sensitivity(3.0, 3, 3.0) == math.inf


@pytest.mark.parametrize("centre", [0.0, -7.0, 1e6, 1e9])
def test_releases_the_mean_of_concentrated_data_wherever_it_is(centre):
    x = np.random.default_rng(0).normal(centre, 0.1, size=(2_000, 3))
    release = FriendlyCoreMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert np.abs(release.value - x.mean(axis=0)).max() < 6 * release.noise_std[0]
    assert release.noise_std[0] < 0.05
    assert release.privacy.certified


def test_outliers_and_nulls_do_not_move_the_mean():
    x = np.random.default_rng(0).normal(50.0, 0.1, size=(4_000, 3))
    x[:400] = 1e9
    x[400:420] = np.nan
    x[420:430] = [[np.inf, 1e308, 5e-324]]
    release = FriendlyCoreMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert np.abs(release.value - 50.0).max() < 6 * release.noise_std[0]


def test_nothing_is_released_of_scattered_data():
    x = np.random.default_rng(0).normal(0.0, 100.0, size=(2_000, 2))
    with pytest.raises(NotConcentratedError) as error:
        FriendlyCoreMean(1.0).release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert not any(character.isdigit() for character in str(error.value))
    session = FriendlyCoreMean(1.0).calibrate(2_000, 2, BUDGET, rounds=3).start(SeededNoise(0))
    with pytest.raises(NotConcentratedError):
        session.answer(x)
    assert session.halted
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(x)


@pytest.mark.parametrize(("n", "rounds"), [(200, 1), (1_000, 1), (1_000, 10)])
@pytest.mark.parametrize("beside", [(), (PureEvent("other", 0.2),)])
def test_the_whole_session_fits_the_budget_and_less_noise_does_not(n, rounds, beside):
    calibrated = FriendlyCoreMean(1.0).calibrate(n, 4, BUDGET, rounds, beside)
    for weight in (0.7 * n, float(n)):
        event = calibrated.mean_event(weight)
        assert delta_of((*beside, *calibrated.setting.events, event), 1.0) <= 1e-6
        less = dataclasses.replace(event, scale=0.9 * event.scale)
        assert delta_of((*beside, *calibrated.setting.events, less), 1.0) > 1e-6


def test_the_lower_bound_fails_as_rarely_as_promised():
    """Exact tail of the count's noise at the first draw that errs, against the announced failure."""
    setting = FriendlyCoreMean(1.0).calibrate(1_000, 1, BUDGET).setting
    numerator = 300_000
    errs = setting.margin + setting.resolution
    exact = setting.weight(numerator * setting.resolution + errs)
    assert exact > numerator / setting.full_weight
    assert setting.weight(numerator * setting.resolution + errs - 1) <= numerator / setting.full_weight
    failure = setting.events[1].delta
    assert norm.sf(errs / setting.scale) <= failure
    assert norm.sf(0.9 * errs / setting.scale) > failure


def test_answers_of_neighbours_stay_within_the_sensitivity_in_lattice_units(silent_noise):
    n, budget = 60, Budget(9.0, 1e-2)
    calibrated = FriendlyCoreMean(1.0).calibrate(n, 2, budget)
    rng, used = np.random.default_rng(0), 0.0
    for _ in range(60):
        x = rng.normal(size=(n, 2)) * 0.15
        y = x.copy()
        x[0] = rng.normal(size=2) * rng.choice([0.3, 0.6])
        y[0] = -x[0]
        weight = max(w.sum() for w in map(weights_of, (x, y))) * (1 - 1e-6)
        answers = []
        for vectors in (x, y):
            session = calibrated.start(silent_noise)
            answers.append(session.answer(vectors))
        moved = np.linalg.norm(answers[0] - answers[1]) / calibrated.lattice.answer_step
        bound = calibrated.mean_event(weight).sensitivity
        assert moved <= bound * (1 + 1e-3)  # the lattice moves counts a little
        used = max(used, moved / bound)
    assert used > 0.1


def test_noise_has_the_announced_scale():
    x = np.zeros((1_000, 2_000))
    release = FriendlyCoreMean(1.0).release(x, epsilon=1.0, delta=1e-6, random_state=5)
    z = (np.var(release.value) / release.noise_std[0] ** 2 - 1) / math.sqrt(2 / 2_000)
    assert abs(z) < norm.isf(5e-7)


def test_too_few_users_says_how_many_would_do():
    with pytest.raises(TooFewUsersError, match=r"at least \d+") as error:
        FriendlyCoreMean(1.0).calibrate(20, 3, BUDGET)
    needed = int(str(error.value).split("at least ")[1].split(",")[0])
    FriendlyCoreMean(1.0).calibrate(needed, 3, BUDGET)
    with pytest.raises(TooFewUsersError):
        FriendlyCoreMean(1.0).calibrate(int(0.9 * needed), 3, BUDGET)
    with pytest.raises(TooFewUsersError):
        FriendlyCoreMean(1.0).calibrate(3, 3, BUDGET)
    with pytest.raises(TooFewUsersError, match="more than any"):
        FriendlyCoreMean(1.0).calibrate(1_000, 3, BUDGET, beside=(PureEvent("other", 1.0),))


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf])
def test_bad_radius(radius):
    with pytest.raises(InvalidInputError, match="radius"):
        FriendlyCoreMean(radius).release(np.zeros((500, 2)), epsilon=1.0, delta=1e-6)


def test_rounds():
    with pytest.raises(InvalidInputError, match="rounds"):
        FriendlyCoreMean(1.0).calibrate(1_000, 1, BUDGET, rounds=0)
    session = FriendlyCoreMean(1.0).calibrate(2_000, 1, BUDGET, rounds=2).start(SeededNoise(0))
    x = np.zeros((2_000, 1))
    session.answer(x)
    session.answer(x)
    with pytest.raises(InvalidInputError, match="all 2 rounds"):
        session.answer(x)
    assert session.finish().certified
