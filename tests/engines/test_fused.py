"""The compiled kernel of gradients: the loss's own derivative, and bit for bit a function of one user."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.engines.users import LOSSES, gradients, make_users
from userdp.data import Users
from userdp.engines import LocalEngine, fused, local_oracle
from userdp.engines.layout import packed
from userdp.engines.local import gradients_of, layout_for
from userdp.errors import InvalidInputError
from userdp.kernels import xla
from userdp.problems import Huber, Logistic, Poisson, Squared

kernel = pytest.importorskip("userdp.kernels.handlers", reason="needs userdp[fast]")


def in_halves(users):
    return Users(users.rows.astype(np.float32).astype(np.float16).astype(float), users.offsets, users.targets)


def test_every_loss_of_the_kernel_is_tested():
    assert tuple(type(loss) for loss in LOSSES) == fused.LOSSES


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("m", "d"), [(300, 1), (67, 5), (5, 100), (1, 256), (3, kernel.LONGEST_ROW)])
def test_gradients_are_the_derivative_s(loss, m, d):
    users = make_users([m, m, m - m // 20], d, seed=d)
    theta = np.random.default_rng(1).normal(size=d) * np.sqrt(d)
    assert layout_for(loss, d, np.float32, on_gpu=False) is packed
    rows, targets = users.rows.astype(np.float32).astype(float), users.targets
    predictions = rows @ theta.astype(np.float32).astype(float)
    with jax.enable_x64(True):
        slopes = np.asarray(loss.derivative(predictions, targets))
    items = users.items_per_user[:, None]
    expected = np.add.reduceat(slopes[:, None] * rows, users.offsets[:-1], axis=0) / items
    size = np.add.reduceat(np.abs(slopes[:, None] * rows), users.offsets[:-1], axis=0) / items
    assert np.all(np.abs(gradients(loss, users, theta) - expected) <= 1e-5 * size + 1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_slopes_at_kinks_and_far_out_are_the_derivative_s(loss):
    """A user whose rows are zero but for one number p, at theta = 1: the gradient is slope times p over m."""
    points = np.array(
        [-200.0, -88.0, -87.0, -30.0, -1.0, -0.4, 0.4, 0.5, 1.0, 1.4, 1.5, 2.0, 3.0, 60.0, 200.0]
    )
    for y in (0.0, 0.5, 1.0, 2.0):
        rows = np.zeros((len(points), 256))
        rows[:, 0] = points
        users = Users.from_rows(rows, np.arange(len(points)), np.full(len(points), y))
        slopes = gradients(loss, users, np.ones(256))[:, 0] / points
        expected = np.asarray(loss.derivative(jnp.asarray(points, jnp.float32), y))
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize(
    "scale", [1.0, 1e-38, 200.0], ids=["plain", "too small to be normal", "slopes of nearly zero"]
)
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.4)], ids=["logistic", "huber"])
def test_a_user_s_gradient_is_the_same_alone_in_any_company_and_on_any_thread(
    loss, scale, storage, monkeypatch
):
    rng = np.random.default_rng(2)
    users = make_users(rng.choice([1, 3, 26, 31, 60], 100), d=11, scale=scale)
    theta = rng.normal(size=11)
    together = gradients(loss, users, theta, storage)
    for j in (0, 57, 99):
        assert gradients(loss, users.take(np.array([j])), theta, storage).tobytes() == together[j].tobytes()
    monkeypatch.setattr(fused, "_PIECE", 2**10)  # many calls
    gradients_of.cache_clear()
    for _ in range(3):
        order = rng.permutation(100)[: rng.integers(70, 101)]
        assert gradients(loss, users.take(order), theta, storage).tobytes() == together[order].tobytes()
    gradients_of.cache_clear()


@pytest.mark.parametrize("d", [5, 16, 40])
@pytest.mark.parametrize(("storage", "too_large"), [("float32", 1e300), ("float16", 7e4), ("int8", 1e300)])
def test_a_null_user_is_null_and_nobody_else_is(storage, too_large, d):
    """Not even the one before, beyond whose last row the kernel reads."""
    users = make_users([100, 101, 99, 100], d=d)
    users.rows[201, 1] = too_large  # an infinity there; the first row of its user
    users.rows[350, 2] = np.nan
    found = gradients(Logistic(), users, np.ones(d), storage)
    assert [bool(np.isfinite(row).all()) for row in found] == [True, True, False, False]


@pytest.mark.parametrize(
    "loss", [Logistic(), Squared(), Poisson(2.0, 1.5)], ids=lambda loss: type(loss).__name__
)
@pytest.mark.parametrize(("m", "d"), [(67, 5), (5, 100), (2, 1000)])
def test_halves_are_the_rounded_features_and_nothing_else_is_rounded(loss, m, d):
    users = make_users([m, 1, m + 3], d)
    theta = np.random.default_rng(1).normal(size=d)
    rounded = in_halves(users)
    found = gradients(loss, users, theta, "float16")
    assert found.tobytes() == gradients(loss, rounded, theta).tobytes()
    np.testing.assert_allclose(found, gradients(loss, users, theta), rtol=0.02, atol=2e-3)
    assert found.tobytes() != gradients(loss, users, theta).tobytes()


@pytest.mark.usefixtures("without_kernel")
def test_without_the_kernel_features_are_rounded_all_the_same():
    users, theta = make_users([40, 3], d=30), np.linspace(-3, 3, 30)
    rounded = in_halves(users)
    found = gradients(Logistic(), users, theta, "float16")
    assert found.tobytes() == gradients(Logistic(), rounded, theta).tobytes()


def test_a_storage_that_is_none_is_refused():
    for refused in (
        {"storage": "int4"},
        {"storage": "float16", "device": "gpu"},
        {"storage": "int8", "device": "gpu"},
    ):
        with pytest.raises(InvalidInputError, match="storage"):
            LocalEngine(**refused)


@pytest.mark.usefixtures("without_kernel")
def test_without_the_kernel_xla_computes_the_same_within_rounding_and_as_independently():
    users, theta = make_users([40, 60, 60, 40], d=30), np.linspace(-3, 3, 30)
    together = gradients(Logistic(), users, theta)
    for j in range(4):
        assert gradients(Logistic(), users.take(np.array([j])), theta).tobytes() == together[j].tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xla, "loaded", lambda: kernel)
        gradients_of.cache_clear()
        np.testing.assert_allclose(gradients(Logistic(), users, theta), together, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("storage", ["float32", "int8"])
@pytest.mark.parametrize("length", [1, 2, 4, 100])
def test_a_theta_of_another_length_is_refused(length, storage):
    """The kernel would take it for the length of a row."""
    oracle = local_oracle(Logistic(), make_users([5, 3], 3), storage=storage)
    with pytest.raises(InvalidInputError, match="theta must have 3 coordinates"):
        oracle.evaluate(np.zeros(length))
