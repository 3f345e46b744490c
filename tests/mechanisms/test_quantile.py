import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ScriptedNoise
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import SeededNoise
from userdp.mechanisms.quantile import GEOMETRIC_GRID, private_quantile

CANDIDATES = np.array([1.0, 2.0, 4.0, 8.0])
values = st.lists(st.sampled_from([0.5, 1.0, 1.5, 3.0, 6.0, 9.0, math.inf, math.nan]), min_size=3, max_size=9)


def plain_scores(values, quantile, candidates=CANDIDATES):
    """Minus the distance of the rank from the ranks that fall into each candidate's bin."""
    rank = math.ceil(quantile * sum(not math.isnan(v) for v in values))
    up_to = [sum(v <= c for v in values) for c in candidates]
    before = [0, *up_to[:-1]]
    return np.array([-max(0, low - rank, rank - high) for low, high in zip(before, up_to, strict=True)])


def winner_law(scores, epsilon):
    """Exact law of the first maximum of scores + geometric noise of scale 2/epsilon."""
    g = np.arange(int(80 / epsilon))
    mass = -math.expm1(-epsilon / 2) * np.exp(-g * epsilon / 2)
    law = []
    for i, score in enumerate(scores):
        wins = mass.copy()
        for j, other in enumerate(scores):
            if j != i:
                room = score + g - other + (j > i)  # ties go to the first
                wins = wins * -np.expm1(-np.maximum(room, 0) * epsilon / 2)
        law.append(wins.sum())
    return np.array(law)


@given(values, st.floats(0, 1), st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_the_winner_is_the_first_largest_noisy_score(values, quantile, draws):
    winner = private_quantile(np.array(values), quantile, 0.5, ScriptedNoise(*draws), CANDIDATES)
    assert winner == CANDIDATES[np.argmax(plain_scores(values, quantile) + draws)]


def test_the_noise_has_scale_two_over_epsilon(scripted_noise):
    noise = scripted_noise(0, 0, 0, 0)
    private_quantile(np.ones(5), 0.5, 0.3, noise, CANDIDATES)
    [(law, scale)] = noise.asked
    assert law == "geometric"
    assert scale == pytest.approx(2 / 0.3)
    assert scale * 0.3 >= 2


@given(values, st.sampled_from([0.5, 3.0, 9.0, math.nan]), st.floats(0, 1))
def test_replacing_one_value_moves_scores_by_one(values, replacement, quantile):
    before = plain_scores(values, quantile)
    after = plain_scores([replacement, *values[1:]], quantile)
    assert np.abs(before - after).max() <= 1


def test_exact_law_within_the_promise_and_not_within_nine_tenths_of_it():
    # Many empty bins above the rank outweigh the right one, so one user moves the winner by two steps.
    epsilon, worst = 1.0, 0.0
    candidates = np.array([1.0, 2.0, 4.0, *np.linspace(5.0, 8.0, 60)])
    for below in range(5):
        some = [1.5] * below + [3.0] * (8 - below)
        for old in (0.5, 1.5, 3.0):
            for new in (3.0, 6.0, 9.0):
                p, q = (winner_law(plain_scores([v, *some], 0.75, candidates), epsilon) for v in (old, new))
                assert p.sum() == pytest.approx(1)
                worst = max(worst, np.abs(np.log(p / q)).max())
    assert worst <= epsilon * (1 + 1e-9)
    assert worst > 0.9 * epsilon


def test_finds_a_quantile_of_unknown_scale():
    for scale in (1e-9, 1.0, 1e9):
        data = scale * np.random.default_rng(0).exponential(size=5_000)
        found = private_quantile(data, 0.5, 1.0, SeededNoise(1))
        assert scale * math.log(2) / 2**0.5 < found < scale * math.log(2) * 2**0.5


def test_infinite_values_count_as_large_and_null_ones_do_not_count():
    data = np.array([1.0] * 400 + [math.nan] * 3_000 + [math.inf] * 300)
    assert private_quantile(data, 0.5, 5.0, SeededNoise(0)) == 1.0
    assert private_quantile(data, 0.9, 5.0, SeededNoise(0)) > 1.0


def test_the_public_grid_is_wide():
    assert GEOMETRIC_GRID[0] == 2.0**-64
    assert GEOMETRIC_GRID[-1] == 2.0**64
    assert np.diff(np.log2(GEOMETRIC_GRID)) == pytest.approx(0.25)


@pytest.mark.parametrize(("quantile", "epsilon"), [(-0.1, 1), (1.1, 1), (math.nan, 1), (0.5, 0), (0.5, -1)])
def test_bad_arguments(quantile, epsilon):
    with pytest.raises(InvalidInputError):
        private_quantile(np.ones(3), quantile, epsilon, SeededNoise(0))
