"""Rows as bytes: what they stand for, and gradients of what they stand for."""

import numpy as np
import pytest

from tests.engines.users import LOSSES, gradients, make_users
from userdp.data import Users
from userdp.engines.layout import packed
from userdp.engines.quantized import quantized, rounded
from userdp.problems import Logistic, Poisson, SquaredHinge

pytest.importorskip("userdp.kernels.handlers", reason="needs userdp[fast]")


def in_bytes(users):
    """Users with the features that bytes stand for."""
    return Users(rounded(users).rows.astype(float), users.offsets, users.targets)


def test_a_feature_moves_by_half_a_unit_and_the_largest_not_at_all():
    users = make_users([7, 1, 30], d=5)
    for before, after in zip(
        np.split(users.rows, [7, 8]), np.split(in_bytes(users).rows, [7, 8]), strict=True
    ):
        largest = np.abs(before).max(axis=0)
        assert np.all(np.abs(after - before) <= largest / 127 * (0.5 + 1e-5))
        at = np.abs(before).argmax(axis=0), range(5)
        np.testing.assert_allclose(after[at], before[at], rtol=1e-6)


def test_bytes_are_where_the_kernel_looks_for_them(monkeypatch):
    """Four rows a line, sixteen columns at a time, four columns of each row after the other; parts change nothing."""
    made = make_users([5, 4, 1, 17], d=21)
    users, expected = packed(made)[0], rounded(made).rows
    found = quantized(users)
    monkeypatch.setattr("userdp.engines.quantized._AT_ONCE", 50)
    again = quantized(users)
    assert all(
        np.array_equal(getattr(found, name), getattr(again, name))
        for name in ("features", "units", "targets")
    )
    assert found.offsets.tolist() == [0, 8, 12, 16, 36]
    lines = found.features.reshape(-1, 2, 4, 4, 4)
    for user in range(4):
        for k in range(users.offsets[user + 1] - users.offsets[user]):
            line, row = divmod(found.offsets[user] + k, 4)
            steps = lines[line, :, :, row].ravel()[:21].astype(float) - 128
            np.testing.assert_allclose(
                steps * found.units[user, :21], expected[users.offsets[user] + k], rtol=1e-6
            )
            assert found.targets[found.offsets[user] + k] == users.targets[users.offsets[user] + k]
        rest = (
            lines[found.offsets[user] // 4 : found.offsets[user + 1] // 4]
            .transpose(0, 3, 1, 2, 4)
            .reshape(-1, 32)
        )
        assert (rest[users.offsets[user + 1] - users.offsets[user] :] == 128).all()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(("m", "d"), [(300, 1), (67, 5), (5, 100), (64, 32), (1, 256), (3, 1024)])
def test_gradients_are_those_of_what_bytes_stand_for(loss, m, d):
    users = make_users([m, m + 3, m - m // 20], d, seed=d)
    theta = np.random.default_rng(1).normal(size=d) * np.sqrt(d)
    found, exact = gradients(loss, users, theta, "int8"), gradients(loss, in_bytes(users), theta)
    rows = in_bytes(users).rows
    size = np.add.reduceat(np.abs(rows), users.offsets[:-1], axis=0) / users.items_per_user[:, None]
    curvature = 9.0 if isinstance(loss, Poisson | SquaredHinge) else 1.0
    allowed = 2e-4 * curvature * (1 + np.abs(rows @ theta).max())
    assert np.all(np.abs(found - exact) <= allowed * size)
    assert found.tobytes() != exact.tobytes()


@pytest.mark.parametrize("d", [5, 16, 40])
def test_only_a_user_s_own_rows_matter(d):
    """Not those behind, which are read; not even where all slopes are as good as zero."""
    rng = np.random.default_rng(0)
    for scale in (1.0, 3e3):
        users = make_users([5, 64, 3, 30], d, scale=scale)
        users.targets[:] = users.rows @ np.ones(d) > 0  # slopes vanish where predictions are large
        before = gradients(Logistic(), users, np.ones(d), "int8")
        users.rows[69:72] = 1e3 * rng.normal(size=(3, d))
        users.targets[69:72] = 1e30
        after = gradients(Logistic(), users, np.ones(d), "int8")
        assert before[[0, 1, 3]].tobytes() == after[[0, 1, 3]].tobytes()


@pytest.mark.parametrize("m", range(1, 10))
def test_rows_that_fill_a_line_do_not_coarsen_the_slopes(m):
    """Slopes of a millionth are still told apart, whatever the slope of a row of zeros would be."""
    rng = np.random.default_rng(0)
    rows = 0.7 + 0.1 * rng.normal(size=(m, 20))
    users = Users.from_rows(rows, np.zeros(m, int), np.ones(m))
    found, exact = (
        gradients(Logistic(), some, np.ones(20), storage)
        for some, storage in ((users, "int8"), (in_bytes(users), "float32"))
    )
    assert np.abs(exact).max() < 1e-5
    np.testing.assert_allclose(found, exact, rtol=1e-3)


def test_columns_of_zeros_and_of_tiny_numbers_are_no_trouble():
    users = make_users([9, 4], 6)
    users.rows[:, 2], users.rows[:, 3] = 0.0, 1e-44
    found = gradients(Logistic(), users, np.ones(6), "int8")
    assert np.isfinite(found).all()
    assert (found[:, 2] == 0).all()


@pytest.mark.parametrize("theta", [np.nan, np.inf, 1e38])
def test_a_theta_out_of_range_makes_null_users_not_wrong_ones(theta):
    users, point = make_users([9, 4], 6), np.ones(6)
    point[1] = theta
    found = gradients(Logistic(), users, point, "int8")
    if np.isfinite(theta):
        np.testing.assert_allclose(found, gradients(Logistic(), users, point), atol=0.05)
    else:
        assert np.isnan(found).all()


@pytest.mark.usefixtures("without_kernel")
def test_without_the_kernel_features_are_rounded_all_the_same():
    users, theta = make_users([40, 3], d=30), np.linspace(-3, 3, 30)
    found = gradients(Logistic(), users, theta, "int8")
    assert found.tobytes() == gradients(Logistic(), in_bytes(users), theta).tobytes()
