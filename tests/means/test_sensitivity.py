"""Lemmas A to C and the index, attacked with neighbouring data sets at radius 1."""

import math

import numpy as np
import pytest

from tests.means.neighbours import Pair, at_random, by_hand, climb, replace_first
from userdp.means.friends import concentration_index, friend_counts, ramp_weights, weighted_mean
from userdp.means.sensitivity import mean_sensitivity, ramp_start

HAND = list(by_hand())
RANDOM = list(at_random(np.random.default_rng(0), 1_500))


def index_of(x):
    return concentration_index(friend_counts(x, 1.0))


def movement(pair: Pair, H: int) -> float:
    """|g - g'| at index H."""
    lo = ramp_start(len(pair.one))
    g, g_2 = (
        weighted_mean(x, ramp_weights(friend_counts(x, 1.0), lo, H - 1)) for x in (pair.one, pair.other)
    )
    return float(np.linalg.norm(g - g_2))


def applicable_indices(pair: Pair) -> range:
    """Every H of Lemma C: at most the larger index of the two, above the ramp's start."""
    n = len(pair.one)
    return range(ramp_start(n) + 2, max(index_of(pair.one), index_of(pair.other)) + 1)


def worst_use(pair: Pair) -> float:
    """Largest share of the bound that the pair uses at any applicable index."""
    n = len(pair.one)
    return max(
        (movement(pair, H) / mean_sensitivity(H, n, 1.0) for H in applicable_indices(pair)), default=0.0
    )


@pytest.mark.parametrize("pair", HAND, ids=lambda pair: pair.name)
def test_bounds_hold_on_hand_made_pairs(pair):
    assert abs(index_of(pair.one) - index_of(pair.other)) <= 1
    assert worst_use(pair) <= 1 + 1e-9


def test_bounds_hold_on_random_pairs():
    for pair in RANDOM:
        assert abs(index_of(pair.one) - index_of(pair.other)) <= 1, pair.name
        assert worst_use(pair) <= 1 + 1e-9, pair.name
    assert max(map(worst_use, RANDOM)) > 0.3


@pytest.mark.parametrize(("n", "d"), [(6, 1), (7, 2), (10, 2), (15, 3), (24, 1)])
def test_bounds_hold_under_attack(n, d):
    rng = np.random.default_rng(n)
    crowd = rng.normal(size=(n, d)) * 0.1 / np.sqrt(d)
    crowd[0, 0] -= 0.6
    start = replace_first("start", crowd, crowd[0] + 1.2 * np.eye(1, d)[0])
    pair, use = climb(worst_use, start, rng, steps=600)
    assert 0.6 < use <= 1 + 1e-9
    assert abs(index_of(pair.one) - index_of(pair.other)) <= 1


def test_the_bound_is_attained_at_perfect_concentration():
    """Cutting Delta_H by a tenth would fail here."""
    for pair in HAND:
        if pair.name.startswith("across the ball"):
            n = len(pair.one)
            assert movement(pair, n) == pytest.approx(mean_sensitivity(n, n, 1.0), rel=1e-9)


def test_the_index_really_moves_by_one():
    assert any(abs(index_of(pair.one) - index_of(pair.other)) == 1 for pair in HAND)


def test_lemma_a_positive_weights_lie_within_two_radii():
    worst = 0.0
    for pair in [*HAND, *RANDOM[:500]]:
        lo = ramp_start(len(pair.one))
        kept = np.vstack([x[friend_counts(x, 1.0) > lo] for x in (pair.one, pair.other)])
        if len(kept):
            worst = max(worst, np.linalg.norm(kept[:, None] - kept[None], axis=2).max())
    assert 1.8 < worst <= 2 + 1e-9


def test_lemma_b_mean():
    """|g - g'| <= 2 (1 + L)/max(W, W') for every ramp, attained."""
    worst = 0.0
    for pair in [*HAND, *RANDOM[:300]]:
        n = len(pair.one)
        lo = ramp_start(n)
        for hi in range(lo + 1, n):
            w, w_2 = (ramp_weights(friend_counts(x, 1.0), lo, hi) for x in (pair.one, pair.other))
            if w.sum() > 0 and w_2.sum() > 0:
                bound = 2 * (1 + np.abs(w - w_2)[1:].sum()) / max(w.sum(), w_2.sum())
                worst = max(worst, movement(pair, hi + 1) / bound)
    assert 0.95 < worst <= 1 + 1e-9


def test_largest_friend_count_does_not_have_sensitivity_one():
    """Why the index is an h-index: one central user holds everybody's count together."""
    spokes = 0.9 * np.eye(10, 10)
    with_centre = np.vstack([np.zeros(10), spokes])
    without = with_centre.copy()
    without[0] = 50.0
    assert friend_counts(with_centre, 1.0).max() - friend_counts(without, 1.0).max() == 10
    assert abs(index_of(with_centre) - index_of(without)) <= 1


@pytest.mark.parametrize("n", [4, 5, 10, 101])
def test_infinite_where_the_lemma_does_not_apply(n):
    lo = ramp_start(n)
    assert mean_sensitivity(lo + 1, n, 1.0) == math.inf
    assert mean_sensitivity(n + 1, n, 1.0) == math.inf
    assert mean_sensitivity(0, n, 1.0) == math.inf
    if n > lo + 1:
        assert math.isfinite(mean_sensitivity(n, n, 1.0))


def test_three_users_are_too_few():
    assert mean_sensitivity(3, 3, 1.0) == math.inf


def test_formula_and_scaling():
    n, H, r = 1_000, 900, 3.0
    lo, q = 500, (1_000 - 500) / 899
    assert mean_sensitivity(H, n, r) == pytest.approx(r * (2 + (1 + q) * 100 / (899 - lo)) / H)
    assert mean_sensitivity(n, n, r) == pytest.approx(2 * r / n)
    ratios = [mean_sensitivity(int(share * n), n, 1.0) / (2 / n) for share in (0.9, 0.8)]
    assert ratios == pytest.approx([1.33, 1.9], abs=0.04)
