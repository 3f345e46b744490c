"""The compiled friend counts give the numbers of ``means.friends`` on every path."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from userdp.means import in_loop_friends
from userdp.means.friends import concentration_index, friend_counts, ramp_numerators

compiled = jax.jit(in_loop_friends.friends, static_argnums=(1, 2, 3))


def check(units, R, lo, hi):
    with jax.enable_x64(True):
        weights, h = compiled(jnp.asarray(units, dtype=jnp.float64), R, lo, hi)
    counts = friend_counts(units, R)
    assert np.asarray(weights).tolist() == ramp_numerators(counts, lo, hi).tolist()
    assert int(h) == concentration_index(counts)


small = st.integers(-9, 9).map(float)
any_integer = st.one_of(
    small, st.sampled_from([np.nan, 2.0**52, -(2.0**52), 2.0**25, 2.0**25 + 3, 1e15, 1e15 + 4, 2.0**40])
)
rows = st.one_of(
    hnp.arrays(float, (2,), elements=small),
    hnp.arrays(float, (2,), elements=any_integer).map(
        lambda x: np.full(2, np.nan) if np.isnan(x).any() else x
    ),
)


compiled_survey = jax.jit(in_loop_friends.survey, static_argnums=1)


def check_survey(units, R):
    """Whoever are said to be friends are, and the sum is theirs."""
    with jax.enable_x64(True):
        crowd = compiled_survey(jnp.asarray(units, dtype=jnp.float64), R)
    present = units[~np.isnan(units[:, 0])]
    assert int(crowd.number) == len(present)
    if bool(crowd.all_friends) and len(present):
        assert (friend_counts(present, R) == len(present)).all()
        whole = [[int(u - o) for u, o in zip(row, np.asarray(crowd.origin), strict=True)] for row in present]
        assert np.asarray(crowd.total).tolist() == np.sum(whole, axis=0).tolist()
    return bool(crowd.all_friends)


@settings(max_examples=200, deadline=None)
@given(st.lists(rows, min_size=9, max_size=9).map(np.array))
def test_equal_to_the_exact_counts_on_small_tables(units):
    check(units, 5, 5, 7)  # 3-4-5 triangles: ties
    check_survey(units, 5)


def crowd(n=300, d=3, spread=0.2, seed=0, R=2**13):
    return np.rint(np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(d) * spread * R)


def bounds(units, R):
    """How many users the triangle inequality leaves open, and how many of them are far out."""
    present = ~np.isnan(units[:, 0])
    with jax.enable_x64(True):
        middle = np.asarray(in_loop_friends.middle(jnp.asarray(units), jnp.asarray(present)))
        distances = np.where(present, np.linalg.norm(units - middle, axis=1), np.inf)
        at_least, at_most = in_loop_friends.count_bounds(
            jnp.asarray(distances), jnp.asarray(present), float(R), 1e-12
        )
        is_open = np.asarray(at_least < at_most)
    return is_open.sum(), (is_open & (distances > 2**25)).sum()


R, N = 2**13, 300


def clusters():
    x = crowd(spread=0.1)
    x[:90] *= 1e-3
    for i in range(8):
        x[i] = 0.0
        x[i, 0] = (10 + 3 * i) * R
    return x


def far(count):
    x = crowd(spread=0.1)
    x[:count, 0] += 1e15
    x[: count // 2, 1] += R // 2
    return x


PATHS = {
    "all friends": (lambda: crowd(spread=0.1), lambda n_open, n_far: n_open == 0),
    "all friends, far away": (lambda: crowd(spread=0.1) + 2.0**51, lambda n_open, n_far: n_open == 0),
    "settled by bounds": (clusters, lambda n_open, n_far: n_open == 0),
    "few open": (lambda: crowd(spread=0.25), lambda n_open, n_far: 0 < n_open <= N // 8),
    "many open": (lambda: crowd(spread=0.6), lambda n_open, n_far: n_open > N // 8),
    "one far away": (lambda: far(1), lambda n_open, n_far: n_far == 0),
    "few far and open": (lambda: far(40), lambda n_open, n_far: 0 < n_far <= 64),
    "many far and open": (lambda: far(90), lambda n_open, n_far: n_far > 64),
    "duplicates": (
        lambda: np.repeat(crowd(spread=0.6)[: N // 10], 10, axis=0),
        lambda n_open, n_far: n_open > 0,
    ),
    "ties": (lambda: np.rint(crowd(spread=0.6) / (R // 2)) * (R // 2), lambda n_open, n_far: n_open > 0),
}


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("name", PATHS)
def test_every_path_gives_the_same_answer(name, with_nulls):
    make, is_taken = PATHS[name]
    units = make()
    assert is_taken(*bounds(units, R))
    if with_nulls:
        units[5::31] = np.nan
    check(units, R, 150, 200)
    assert check_survey(units, R) == name.startswith("all friends")


@pytest.mark.parametrize("far", [2 * R, 2 * R + 1, 3 * R, 2**52], ids=str)
@pytest.mark.parametrize("place", [0, 7])
def test_one_user_far_away_is_seen_also_where_offsets_are_cut(far, place):
    units = np.zeros((N, 3))
    units[place, 1] = far
    assert not check_survey(units, R)
    units[::2, 1] = far
    assert not check_survey(units, R)
    units[:, 1] = 0
    units[place, 1] = R // 2 - 1
    assert check_survey(units, R)


def test_nobody_is_there():
    check(np.full((9, 2), np.nan), 5, 5, 7)
    assert check_survey(np.full((9, 2), np.nan), 5)


def test_the_slack_covers_the_rounding_of_norms_in_every_dimension():
    """A norm of d squares is off by at most (d + 4) 2^-53; the bounds use it four times at most."""
    for d in (1, 100, 2**26):
        assert in_loop_friends.rounding_slack(d) > 4 * (d + 4) * 2.0**-53


def test_order_does_not_matter():
    units = crowd(spread=0.5)
    order = np.random.default_rng(1).permutation(N)
    with jax.enable_x64(True):
        one, two = (compiled(jnp.asarray(x), R, 150, 200) for x in (units, units[order]))
    assert np.array_equal(np.asarray(one.weights)[order], np.asarray(two.weights))
    assert int(one.h) == int(two.h)
