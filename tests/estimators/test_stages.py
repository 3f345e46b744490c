"""Each stage on neighbouring users: the integers move by no more than the event says, and by that much."""

import math

import numpy as np
import pytest

from tests.estimators.tables import ragged
from userdp.estimators import stages
from userdp.estimators.balls import BallMean
from userdp.estimators.rows import boolean_rates, norms_of, user_rates
from userdp.estimators.sizes import FIRST_BINS
from userdp.estimators.stages import importance_of
from userdp.estimators.standardizing import standardize
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import SeededNoise
from userdp.planning.shares import shares
from userdp.privacy.budget import Budget

D = 3


def sum_in_units(found, centre, radius, n):
    """Undo a noiseless ball mean: the integer sum over users."""
    return (found.value - centre) * n / Lattice.fine_enough(radius, n, len(centre)).step


@pytest.mark.parametrize("d", [1, 3, 50])
def test_ball_means_move_by_the_event_s_sensitivity(d, silent_noise):
    n, centre, radius = 9, np.linspace(-1, 1, d), 0.7
    rng = np.random.default_rng(d)
    vectors, far = rng.normal(size=(n, d)), 1e6 * np.ones(d)
    moves = []
    for row in (far, -far, far * 1e300, np.full(d, np.inf), np.full(d, np.nan), centre, rng.normal(size=d)):
        sums = []
        for other in (row, far):
            vectors[0] = other
            found = stages.private_mean_in_ball(vectors, centre, radius, 0.5, "stage", silent_noise)
            sums.append(sum_in_units(found, centre, radius, n))
        moves.append(np.linalg.norm(sums[0] - sums[1]) / found.event.sensitivity)
    assert max(moves) <= 1 + 1e-9
    assert max(moves) > 0.998 - math.sqrt(d) / 4096
    assert found.event.mu <= 0.5


def test_a_null_user_counts_as_the_centre(silent_noise):
    centre = np.array([1.0, -2.0])
    one, two = (
        stages.private_mean_in_ball(np.vstack([row, np.ones((4, 2))]), centre, 9.0, 1.0, "", silent_noise)
        for row in (centre, np.full(2, np.nan))
    )
    assert one.value.tobytes() == two.value.tobytes()


@pytest.fixture
def ball_sums(monkeypatch):
    """Record the integer sum and the event of every ball mean that a stage asks for."""
    recorded = []
    mean = stages.private_mean_in_ball

    def record(vectors, centre, radius, mu, name, noise):
        found = mean(vectors, centre, radius, mu, name, noise)
        recorded.append((sum_in_units(found, centre, radius, len(vectors)), found.event))
        return found

    monkeypatch.setattr(stages, "private_mean_in_ball", record)
    return recorded


def test_second_moments_move_by_their_event(ball_sums, silent_noise):
    rest = np.ones((8, D))
    for first in (0.0, 16.0):
        found, _ = stages.private_second_moment(np.vstack([np.full(D, first), rest]), 0.5, silent_noise)
        assert ((found >= 1 / 16) & (found <= 16)).all()
    (one, event), (two, _) = ball_sums
    assert 0.998 < np.linalg.norm(one - two) / event.sensitivity <= 1 + 1e-9


@pytest.mark.parametrize(("k", "attained"), [(2, 0.999), (3, 0.865), (10, 0.745)])
def test_base_rates_move_by_their_event(k, attained, ball_sums, silent_noise):
    """Two classes attain the bound; of more classes the simplex is smaller than its ball."""
    rest = np.full((8, k), 1 / k)
    for first in (np.eye(k)[0], np.eye(k)[1], np.full(k, np.nan)):
        rates, _ = stages.private_base_rate(np.vstack([first, rest]), 0.5, silent_noise)
        assert rates.sum() == pytest.approx(1)
        assert (rates > 0).all()
    moves = [
        np.linalg.norm(one - two) / event.sensitivity for one, event in ball_sums for two, _ in ball_sums
    ]
    assert attained < max(moves) <= 1 + 1e-9


def test_rates_at_a_corner_are_not_clipped(silent_noise):
    rates, _ = stages.private_base_rate(np.tile([1.0, 0.0, 0.0], (5_000, 1)), 3.0, silent_noise)
    assert rates[0] > 0.99


def test_rates_of_users():
    users = ragged([[0.0]] * 4, [[0.0]], [[0.0]] * 2, targets=[[0, 1, 1, 2], [2], [1, np.nan]])
    rates = user_rates(users, 3)
    assert rates[:2].tolist() == [[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]
    assert np.isnan(rates[2]).all()


def test_rates_of_booleans_move_by_their_event(ball_sums, silent_noise):
    rest = np.zeros((8, D))
    for first in (np.ones(D), -np.ones(D), np.full(D, np.nan)):
        stages.private_rates(np.vstack([first, rest]), 0.5, 0.5, silent_noise)
    moves = [
        np.linalg.norm(one - two) / event.sensitivity for one, event in ball_sums for two, _ in ball_sums
    ]
    assert 0.998 < max(moves) <= 1 + 1e-9


def test_a_unit_of_a_boolean_is_its_spread_and_no_finer_than_the_noise():
    rng = np.random.default_rng(0)
    rates = rng.binomial(10, [0.5, 0.2, 0.001, 0.001], size=(2_000, 4)) / 10
    often, units, event = stages.private_rates(rates, 0.55, 0.05, SeededNoise(0))
    noise = event.scale * Lattice.fine_enough(1.2 * 0.55, 2_000, 4).step / 2_000
    assert often == pytest.approx([0.5, 0.2, 0.0, 0.0], abs=4 * noise)
    assert units[:2] == pytest.approx([0.5, 0.4], abs=0.03)
    assert (units[2:] >= np.sqrt(noise * (1 - noise)) * (1 - 1e-9)).all()


def test_a_boolean_that_may_never_be_true_is_left_out_beside_others():
    """Not where nothing tells more, and not once it is known to be true now and then."""
    rng = np.random.default_rng(0)
    beside, alone = (
        rng.binomial(1, [0.5, *[0.001] * 20], size=(4_000, 21)),
        rng.binomial(1, 0.001, (4_000, 20)),
    )
    for rates, mu, left_out in ((beside, 0.3, 20), (alone, 0.3, 0), (beside, 3e3, 0)):
        _, units, _ = stages.private_rates(rates.astype(float), 0.7, mu, SeededNoise(0))
        assert np.isinf(units).sum() == left_out
        assert np.isfinite(units[0])


def test_rates_learn_from_each_other():
    """One often, the others hardly ever: noise does not make them common. All alike: noise does not tell them apart."""
    rng, noise = np.random.default_rng(0), 0.1
    few = np.append(0.5, np.full(20, 0.003)) + noise * rng.normal(size=21)
    many = np.full(40, 0.1) + noise * rng.normal(size=40)
    found = [stages.likely_rates(BallMean(values, noise, None)) for values in (few, many)]
    assert found[0][0] == pytest.approx(0.5, abs=0.3)
    assert found[0][1:].max() < 0.06
    assert found[1].std() < 0.06
    assert found[1].mean() == pytest.approx(0.1, abs=0.05)


def test_of_what_is_rarely_true_little_is_expected():
    importance = importance_of(np.array([0.5, 0.001, 0.001]))
    assert importance == pytest.approx([1.0, 0.004, 0.004], rel=0.02)
    assert importance_of(np.full(7, 0.03)) == pytest.approx(np.ones(7))


@pytest.mark.parametrize("n", [50, 3_000])
def test_booleans_alone_cost_one_vote_and_a_mean(n):
    rng = np.random.default_rng(0)
    users = ragged(*(rng.random((4, 16)) < 0.0625 for _ in range(n)))
    split = shares(n, 16, Budget(0.3 if n == 50 else 3.0, 1e-6), is_regression=False, n_booleans=16)
    columns, events = standardize(users, split, np.ones(16, dtype=bool), SeededNoise(0))
    assert [event.coordinates for event in events] == ([] if n == 50 else [len(FIRST_BINS), 16])
    if n == 50:  # too few to know how often they are true, and so to fit them
        assert np.isinf(columns.scale).all()
    else:
        assert columns.centre.mean() == pytest.approx(0.0625, rel=0.2)
        assert np.isfinite(columns.scale).all()


def test_rates_of_a_user_s_booleans():
    users = ragged([[1.0, 0.0, 1.0, 9.0], [0.0, 0.0, 1.0, 9.0]], [[np.nan, np.nan, np.nan, np.nan]])
    rates = boolean_rates(users, np.array([True, True, True, False]))
    assert rates[0].tolist() == [0.5, 0.0, 1.0]
    assert np.isnan(rates[1]).all()
    assert boolean_rates(users, np.zeros(4, dtype=bool)).shape == (2, 0)


@pytest.mark.parametrize("first", [1e9, -1e9, 3.0, np.nan, np.inf])
def test_centres_move_by_their_event(first, ball_sums, silent_noise):
    places, rest = np.array([0.0, 5.0, -1e6]), np.random.default_rng(0).normal(size=(20, D))
    with np.errstate(all="ignore"):
        for value in (first, -1e9):
            means = places + np.vstack([np.full(D, value), rest])
            stages.private_centre(means, places, 10.0, silent_noise)
    (one, event), (two, _) = ball_sums
    assert np.linalg.norm(one - two) / event.sensitivity <= 1 + 1e-9


def test_a_centre_is_weighed_against_its_place():
    means = np.random.default_rng(0).normal([0.3, 5.0], 0.3, size=(4_000, 2))
    near, _ = stages.private_centre(means, np.array([0.0, 5.0]), 1.0, SeededNoise(0))
    assert near == pytest.approx([0.3, 5.0], abs=0.06)
    far, _ = stages.private_centre(means, np.array([0.0, 5.0]), 1e-4, SeededNoise(0))
    assert far == pytest.approx([0.0, 5.0], abs=0.2)  # mostly noise


@pytest.mark.parametrize("d", [1, 3, 17, 200])
def test_the_norm_of_a_user_s_rates_is_bit_for_bit_a_function_of_them(d):
    rates = np.random.default_rng(d).random((40, d))
    together = norms_of(rates)
    for j in range(len(rates)):
        assert norms_of(rates[j : j + 1])[0].tobytes() == together[j].tobytes()
