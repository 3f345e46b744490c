"""Deletion PTR: the search against its definition, and neighbours within its bounds."""

import contextlib
import dataclasses
import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from tests.means.neighbours import Pair, at_random, climb, replace_first
from userdp.errors import InvalidInputError, NotConcentratedError, PrivacyWarning, TooFewUsersError
from userdp.means import DeletionPTR
from userdp.means.deletions import DeletionTest, fewest_deletions
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import PureEvent, delta_of

BUDGET = Budget(8.0, 1e-4)


def setting(n, d, limit):
    return DeletionTest(1.0, n, limit, 0), Lattice.fine_enough(1.0, n, d)


def search(x, limit):
    test, lattice = setting(*x.shape, limit)
    return fewest_deletions(lattice.round(x), test, lattice)


def search_by_definition(x, limit):
    """The docstring of the module, in floats; ties are kept away from by the caller."""
    n = len(x)
    test, lattice = setting(*x.shape, limit)
    units = lattice.round(x) * lattice.step

    def mean(users):
        return units[list(users)].mean(axis=0)

    def calm(users):
        kept = [u for u in users if np.isfinite(units[u]).all()]
        return len(kept) >= 2 and all(
            np.linalg.norm(mean(kept) - mean([v for v in kept if v != u])) <= 1 / test.smallest + 1e-12
            for u in kept
        )

    def stable(users):
        return calm(users) and (
            len(users) == test.smallest or all(stable(tuple(v for v in users if v != u)) for u in users)
        )

    for r in range(limit + 2):
        for deleted in combinations(range(n), r):
            if stable(tuple(u for u in range(n) if u not in deleted)):
                return r
    return limit + 1


def test_search_agrees_with_the_definition():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        n, limit = (int(rng.integers(4, 8)), 0) if rng.random() < 0.5 else (int(rng.integers(6, 8)), 1)
        x = rng.normal(size=(n, 2)) * rng.choice([0.1, 0.4])
        if rng.random() < 0.6:
            x[0] += rng.choice([0.7, 2.0, 100.0])
        if rng.random() < 0.3:
            x[1] = np.nan
        r, weights = search(x, limit)
        assert r == search_by_definition(x, limit)
        assert weights.sum() <= n - r
        seen.add(r)
    assert seen == {0, 1, 2}


def movement(pair: Pair, limit: int) -> tuple[int, int, float]:
    """r*, r*' and the movement of the mean over its bound."""
    test, lattice = setting(*pair.one.shape, limit)
    found = [search(x, limit) for x in (pair.one, pair.other)]
    (r, w), (r_2, w_2) = found
    means = []
    for x, weights in zip((pair.one, pair.other), (w, w_2), strict=True):
        whole, fraction = lattice.mean(lattice.round(x), weights)
        means.append(lattice.value(whole, fraction))
    moved = float(np.linalg.norm(means[0] - means[1])) / test.mean_sensitivity(1.0)
    return r, r_2, moved


def small_pairs():
    rng = np.random.default_rng(1)
    for pair in at_random(rng, 400):
        x = pair.one[: int(rng.integers(6, 12))]
        yield replace_first(pair.name, x, pair.other[0])


@pytest.mark.parametrize("limit", [0, 1])
def test_neighbours_differ_by_one_deletion_and_within_the_sensitivity(limit):
    moves, worst = set(), 0.0
    for pair in small_pairs():
        r, r_2, moved = movement(pair, limit)
        assert abs(r - r_2) <= 1, pair.name
        moves.add(r - r_2)
        if min(r, r_2) <= limit:
            assert moved <= 1 + 1e-6, pair.name
            worst = max(worst, moved)
    assert moves == {-1, 0, 1}
    assert worst > 0.2


@pytest.mark.parametrize(("n", "limit"), [(8, 0), (9, 1)])
def test_bounds_hold_under_attack(n, limit):
    rng = np.random.default_rng(n)

    def objective(pair):
        r, r_2, moved = movement(pair, limit)
        assert abs(r - r_2) <= 1
        return moved if min(r, r_2) <= limit else 0.0

    crowd = rng.normal(size=(n, 1)) * 0.1
    start = replace_first("start", crowd, crowd[0] + 0.8)
    _, use = climb(objective, start, rng, steps=200)
    assert 0.2 < use <= 1 + 1e-6


def test_a_crossing_user_moves_the_mean_by_two_steps():
    """At r* = 0 on both sides: more than half of the bound, which also covers r* = 1 on one side."""
    n, limit = 9, 0
    test, _ = setting(n, 1, limit)
    x = np.zeros((n, 1))
    reach = 0.999  # about the farthest that one user of a stable set may be from all others
    x[0] = -reach
    r, r_2, moved = movement(replace_first("cross", x, np.array([reach])), limit)
    assert (r, r_2) == (0, 0)
    assert moved * test.mean_sensitivity(1.0) == pytest.approx(2 * reach / n, rel=1e-3)
    assert moved > 0.55


def test_users_within_the_radius_need_no_deletion():
    rng = np.random.default_rng(0)
    for n, limit in [(5, 0), (8, 1), (12, 1)]:
        x = rng.random((n, 1)) + 1e4
        assert search(x, limit)[0] == 0
    assert search(np.full((8, 2), np.nan), 1)[0] == 2


def test_outliers_and_nulls_are_deleted():
    x = np.random.default_rng(0).normal(7.0, 0.05, size=(12, 2))
    x[3] = 1e6
    x[5] = np.nan
    x[7] = np.inf
    r, weights = search(x, limit=2)
    assert r == 1  # a null user moves no mean; the outlier has to go
    assert weights[[3, 5, 7]].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("epsilon", "failure"), [(4.0, 1e-5), (1.0, 1e-3), (0.3, 0.01), (20.0, 1e-4)])
def test_the_test_errs_and_passes_as_promised(epsilon, failure):
    """Exact law of the discrete Laplace noise; one deletion less in the margin would err too often."""
    test = DeletionTest.for_budget(epsilon, failure, n_users=10)
    margin = test.limit + 1 - test.threshold

    def tail(k):
        return math.exp(-epsilon * k) / (1 + math.exp(-epsilon))

    assert tail(margin) <= failure
    assert margin == 1 or tail(margin - 1) > failure
    assert 1 - tail(test.threshold + 1) >= 0.95
    assert test.depth == 2 * test.limit + 2
    assert test.subsets == sum(math.comb(10, i) for i in range(test.depth))


def test_the_noisy_comparison(scripted_noise):
    calibrated = DeletionPTR(1.0).calibrate(12, 1, BUDGET)
    x = np.zeros((12, 1))
    for draw, passes in [(calibrated.test.threshold, True), (calibrated.test.threshold + 1, False)]:
        noise = scripted_noise(draw, 0)
        session = calibrated.start(noise)
        if passes:
            assert session.answer(x)[0] == 0
            assert noise.asked[0] == ("laplace", pytest.approx(1 / calibrated.test.epsilon))
        else:
            with pytest.raises(NotConcentratedError):
                session.answer(x)
            assert session.halted


@pytest.mark.parametrize("centre", [0.0, 1e6])
def test_releases_the_mean_of_few_users(centre):
    x = np.random.default_rng(0).normal(centre, 0.1, size=(16, 2))
    release = DeletionPTR(1.0).release(x, epsilon=8.0, delta=1e-4, random_state=1)
    assert np.abs(release.value - x.mean(axis=0)).max() < 6 * release.noise_std[0]
    assert release.noise_std[0] < 1
    assert release.privacy.certified


def test_nothing_is_released_of_scattered_data():
    x = np.random.default_rng(0).normal(0.0, 100.0, size=(14, 2))
    with pytest.raises(NotConcentratedError) as error:
        DeletionPTR(1.0).release(x, epsilon=8.0, delta=1e-4, random_state=1)
    assert not any(character.isdigit() for character in str(error.value))


@pytest.mark.parametrize(("budget", "rounds"), [(BUDGET, 1), (Budget(9.0, 1e-3), 2), (Budget(4.0, 1e-3), 1)])
@pytest.mark.parametrize("beside", [(), (PureEvent("other", 0.5),)])
def test_the_whole_session_fits_the_budget_and_less_noise_does_not(budget, rounds, beside):
    calibrated = DeletionPTR(1.0).calibrate(16, 2, budget, rounds, beside)
    events = (*calibrated.others, calibrated.event)
    assert delta_of(events, budget.epsilon) <= budget.delta
    less = dataclasses.replace(calibrated.event, scale=0.9 * calibrated.event.scale)
    assert delta_of((*calibrated.others, less), budget.epsilon) > budget.delta
    failure = calibrated.others[-1].delta / rounds
    margin = calibrated.test.limit + 1 - calibrated.test.threshold
    assert math.exp(-calibrated.test.epsilon * margin) / (1 + math.exp(-calibrated.test.epsilon)) <= failure
    bound = calibrated.test.mean_sensitivity(1.0) / calibrated.lattice.answer_step
    assert calibrated.event.sensitivity >= bound + math.sqrt(2)


def test_noise_has_the_announced_scale():
    x = np.zeros((10, 1_000))
    release = DeletionPTR(1.0).release(x, epsilon=8.0, delta=1e-4, random_state=0)
    z = (np.var(release.value) / release.noise_std[0] ** 2 - 1) / math.sqrt(2 / 1_000)
    assert abs(z) < norm.isf(5e-7)


def test_refuses_what_would_take_too_long_with_its_cost():
    with pytest.raises(InvalidInputError, match=r"take 2,804,012 subsets a round; the limit is 200,000"):
        DeletionPTR(1.0).calibrate(30, 2, Budget(8.0, 1e-6))
    with pytest.warns(PrivacyWarning):
        large = Budget(40.0, 1e-4)
    with pytest.raises(InvalidInputError, match="subsets of 60 users"):
        DeletionPTR(1.0).calibrate(100, 2, large)
    with pytest.raises(InvalidInputError, match=r"take about 10\^105 subsets a round"):
        DeletionPTR(1.0).calibrate(1_000, 16, Budget(1.0, 1e-6))
    with pytest.raises(TooFewUsersError, match=r"deletes up to 68; it takes at least 69 \(and about 2\^69"):
        DeletionPTR(1.0).calibrate(12, 2, Budget(1.0, 1e-6))


@pytest.mark.parametrize(
    ("options", "word"),
    [({"radius": 0.0}, "radius"), ({"radius": 1.0, "test_share": 1.0}, "test_share")],
)
def test_bad_options(options, word):
    with pytest.raises(InvalidInputError, match=word):
        DeletionPTR(**options).release(np.zeros((12, 2)), epsilon=8.0, delta=1e-4)


def test_dimension_that_does_not_fit():
    with pytest.raises(InvalidInputError, match="64-bit"):
        DeletionPTR(1.0).calibrate(20, 2**18, BUDGET)


def test_nothing_left_and_rounds():
    with pytest.raises(InvalidInputError, match="leave no budget"):
        DeletionPTR(1.0).calibrate(12, 2, BUDGET, beside=(PureEvent("other", 8.0),))
    with pytest.raises(InvalidInputError, match="rounds"):
        DeletionPTR(1.0).calibrate(12, 2, BUDGET, rounds=0)
    session = DeletionPTR(1.0).calibrate(12, 1, BUDGET).start(SeededNoise(3))
    session.answer(np.zeros((12, 1)))
    with pytest.raises(InvalidInputError, match="all 1 rounds"):
        session.answer(np.zeros((12, 1)))
    session.finish()
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(np.zeros((12, 1)))


def test_wild_values_say_nothing():
    for value in (np.nan, np.inf, 1e308, -1e308, 5e-324):
        x = np.zeros((14, 2))
        x[0] = value
        with contextlib.suppress(NotConcentratedError):
            DeletionPTR(1.0).release(x, epsilon=8.0, delta=1e-4, random_state=0)
