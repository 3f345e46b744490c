"""The GPU's kernels, interpreted on a CPU: the numbers they compute, not their speed."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from userdp.data import Users
from userdp.engines import LocalEngine, gpu, local_oracle
from userdp.engines.layout import blocks
from userdp.engines.local import gradients_of
from userdp.errors import InvalidInputError
from userdp.means import gpu_friends
from userdp.means.friends import friend_counts
from userdp.problems import Hinge, Logistic, Multinomial, Squared

D = 5


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    for module in (gpu, gpu_friends):
        monkeypatch.setattr(module.pl, "pallas_call", partial(module.pl.pallas_call, interpret=True))
    gradients_of.cache_clear()
    yield
    gradients_of.cache_clear()


def make_users(items, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(items), D))
    return Users.from_rows(rows, np.repeat(np.arange(len(items)), items), rng.integers(0, 2, size=len(rows)))


def in_order(data, vectors):
    """Rows in the order of the users."""
    return vectors[np.argsort(np.concatenate([users.positions[: users.n_users] for users in data]))]


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Hinge(), Multinomial(2)])
def test_gradients_are_the_cpu_s_within_rounding(loss, monkeypatch):
    monkeypatch.setattr(gpu, "_TILE", 16)  # several tiles a user
    users = make_users([7, 7, 3, 7])
    users.rows[8, 0] = np.nan
    oracle = local_oracle(loss, users)
    theta = np.linspace(-1, 1, oracle.dimension)
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, blocks(users))
        found = gradients_of(loss, True, True)(data, jnp.asarray(theta), jax.random.key(0))
    expected = in_order(oracle.data, oracle.evaluate(theta))
    np.testing.assert_allclose(in_order(data, np.asarray(found)), expected, rtol=1e-5, atol=1e-6)


def test_friend_counts_are_the_cpu_s_with_ties_outliers_and_nulls(monkeypatch):
    monkeypatch.setattr(gpu_friends, "_ROWS", 32)
    monkeypatch.setattr(gpu_friends, "_COLUMNS", 32)
    rng = np.random.default_rng(0)
    R = 20_000.0
    units = np.rint(rng.normal(size=(70, D)) * R / 2)
    units[3:6] = units[0] + R * np.eye(3, D)  # exactly at the radius
    units[6] = units[0] + [R + 1, 0, 0, 0, 0]
    units[7:9] = [[gpu_friends.LARGEST] * D, [-gpu_friends.LARGEST] * D]
    units[9:12] *= 50  # more than two bytes
    units[12] = units[11] + 1
    present = np.arange(70) % 9 != 2
    with jax.enable_x64(True):
        found = gpu_friends.counts_on_gpu(jnp.asarray(units), jnp.asarray(present), R)
    units[~present] = np.nan
    assert np.array_equal(np.asarray(found), friend_counts(units, R))


def test_a_gpu_that_is_not_there():
    if jax.default_backend() == "gpu":
        pytest.skip("there is one")
    with pytest.raises(InvalidInputError, match=r"userdp\[cuda\]"):
        LocalEngine("gpu").oracle(Logistic(), make_users([2, 2]))
    with pytest.raises(InvalidInputError, match="device"):
        LocalEngine("tpu")
