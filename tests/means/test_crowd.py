"""The compiled look at all users as one crowd: whoever are said to be friends are, and the sum is theirs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from userdp.kernels import xla
from userdp.means import crowd
from userdp.means.crowd import crowd_of
from userdp.means.friends import friend_counts
from userdp.means.lattice import Lattice
from userdp.means.sharded import Survey as ShardSurvey

needs_kernel = pytest.mark.skipif(xla.loaded() is None, reason="needs userdp[fast]")


def look(vectors, lattice):
    with jax.enable_x64(True):
        return jax.jit(lambda vectors: crowd_of(vectors, lattice))(jnp.asarray(vectors, jnp.float32))


def check(vectors, radius=1.0):
    """Compare with exact integers."""
    vectors = np.asarray(vectors, np.float32)
    lattice = Lattice.fine_enough(radius, len(vectors), vectors.shape[1])
    found, units = look(vectors, lattice), lattice.round(vectors.astype(float))
    present = units[~np.isnan(units[:, 0])]
    assert int(found.number) == len(present)
    if bool(found.all_friends) and len(present):
        assert (friend_counts(present, lattice.radius_units) == len(present)).all()
        expected = (present - np.asarray(found.origin)).sum(axis=0)
        assert np.asarray(found.total).tolist() == expected.tolist()
    return bool(found.all_friends)


def users(n=500, d=7, spread=0.1, seed=0):
    return 3.0 + spread * np.random.default_rng(seed).normal(size=(n, d)) / np.sqrt(d)


@pytest.mark.parametrize("n", [1, 2, 17, 500, 4_000])
@pytest.mark.parametrize("d", [1, 7, 33])
def test_users_that_agree_are_friends(n, d):
    assert check(users(n, d))


@pytest.mark.parametrize("pieces", [1, 3, 32])
def test_nobody_is_left_out_however_users_are_cut(pieces, monkeypatch):
    monkeypatch.setattr(crowd, "_PIECE", 1)
    monkeypatch.setattr(crowd, "_MOST_PIECES", pieces)
    for outlier in (0, 250, 499):
        vectors = users()
        assert check(vectors)
        vectors[outlier] += 0.9
        assert not check(vectors)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e30])
def test_null_users_count_for_nothing_and_far_ones_are_no_friends(value):
    vectors = users()
    vectors[100, 3] = value
    units = Lattice.fine_enough(1.0, 500, 7).round(vectors.astype(np.float32).astype(float))
    assert check(vectors) == bool(np.isnan(units[100, 0]) and not np.isfinite(value))
    assert check(np.full((9, 2), np.nan))


@needs_kernel
def test_both_ways_find_the_same(monkeypatch):
    vectors = users().astype(np.float32)
    lattice = Lattice.fine_enough(1.0, 500, 7)
    one = look(vectors, lattice)
    monkeypatch.setattr(xla, "loaded", lambda: None)
    other = look(vectors, lattice)
    assert bool(one.all_friends)
    assert bool(other.all_friends)
    assert int(one.number) == int(other.number)
    sums = [np.asarray(found.total) + 500 * np.asarray(found.origin) for found in (one, other)]
    assert sums[0].tolist() == sums[1].tolist()


def test_without_float64_the_loop_is_not_called(monkeypatch):
    """It would read and write numbers of another size."""
    monkeypatch.setattr(crowd, "_by_kernel", None)
    with jax.enable_x64(False), pytest.warns(UserWarning, match="float64"):
        crowd_of(jnp.zeros((50, 7), jnp.float32), Lattice.fine_enough(1.0, 50, 7))


def test_users_at_the_border_are_friends_only_within_half_a_radius():
    vectors = np.zeros((100, 1))
    vectors[:50], vectors[50:] = -0.499, 0.499
    assert check(vectors)
    vectors[:50], vectors[50:] = -0.501, 0.501
    assert not check(vectors)


@needs_kernel
@pytest.mark.parametrize("outlier", [3.0, 3.9, 1e6, np.nan])
def test_a_shard_answers_the_same_with_and_without_the_loop(outlier, monkeypatch):
    vectors = users().astype(np.float32)
    vectors[100] = outlier
    lattice = Lattice.fine_enough(8.0, 500, 7)
    centre = np.rint(np.full(7, 3.1) / lattice.step)

    def answer():
        with jax.enable_x64(True):
            survey = jax.jit(lambda vectors: ShardSurvey(lattice)(vectors, jnp.asarray(centre)))
            return survey(jnp.asarray(vectors))

    number, farthest, total = map(np.asarray, answer())
    monkeypatch.setattr(xla, "loaded", lambda: None)
    other_number, other_farthest, other_total = map(np.asarray, answer())
    assert number == other_number == 500 - np.isnan(outlier)
    np.testing.assert_allclose(farthest, other_farthest, rtol=1e-12)
    if farthest <= lattice.radius_units:
        assert total.tolist() == other_total.tolist()
    assert (farthest <= lattice.radius_units) == (outlier != 1e6)
