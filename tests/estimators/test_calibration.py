"""Length and intercepts, once a descent has ended."""

import numpy as np
import pytest

from userdp.data.users import Users
from userdp.engines.interface import LocalEngine
from userdp.estimators.calibration import Adjustable, calibrate
from userdp.mechanisms.noise import SeededNoise
from userdp.problems import Logistic, Squared

WAY = np.array([0.6, 0.8, 0.3])
LAST = np.array([False, False, True])
H = 0.25


def calibrated(adjustable, users, loss, point, gradient, mu):
    return calibrate(
        adjustable,
        LocalEngine().oracle(loss, users),
        np.zeros(3),
        point,
        gradient,
        effective_users=1_000.0,
        ratio=1.0,
        typical=0.5,
        curvature=1.0 if isinstance(loss, Squared) else H,
        mu=mu,
        noise=SeededNoise(0),
    )


def table(seed=0, n=4_000):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), np.ones(n)])
    return X, rng, np.arange(n + 1)


@pytest.mark.parametrize("steepness", [0.2, 1.0, 30.0])
def test_along_every_direction_the_loss_has_the_same_curvature(steepness):
    """If the way ends where it should, the gradient at its start is minus the curvature times the way."""
    slopes = np.where(LAST, 0.0, WAY)
    directions, along = Adjustable(LAST, True).directions(WAY, -steepness * H * slopes, H)
    assert along @ directions == pytest.approx(WAY)
    assert directions[1].tolist() == LAST.astype(float).tolist()
    assert steepness * H * directions[0] @ directions[0] == pytest.approx(min(steepness, 1) * H)


def test_a_regression_has_its_intercept_and_no_length():
    adjustable = Adjustable(LAST, is_classification=False)
    directions, along = adjustable.directions(WAY, np.ones(3), 1.0)
    assert adjustable.count == len(directions) == 1
    assert along.tolist() == [0.3]
    assert Adjustable(np.zeros(3, dtype=bool), is_classification=False).count == 0


def test_many_coefficients_need_no_square_of_memory():
    k = 200_000
    directions, _ = Adjustable(np.arange(k) == k - 1, True).directions(np.ones(k), -np.ones(k), H)
    assert directions.shape == (2, k)


@pytest.mark.parametrize("gone_too_far", [0.6, 1.6])
def test_a_classifier_gets_its_length_and_its_intercept(gone_too_far):
    X, rng, offsets = table()
    best = np.array([0.9, -0.7, -0.4])
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ best))).astype(float)
    point = np.append(gone_too_far * best[:2], 0.5)
    gradient = -H * np.append(best[:2], 0.0)
    found, length = calibrated(Adjustable(LAST, True), Users(X, offsets, y), Logistic(), point, gradient, 1.0)
    assert np.abs(found - best).max() < 0.5 * np.abs(point - best).max()
    assert found[:2] == pytest.approx(length * point[:2])


def test_a_regression_gets_its_intercept_and_keeps_its_slopes():
    X, rng, offsets = table()
    users = Users(X, offsets, X @ [1.0, -1.0, 0.3] + 0.3 * rng.normal(size=len(X)))
    point = np.array([1.0, -1.0, 0.0])
    found, length = calibrated(Adjustable(LAST, False), users, Squared(), point, np.zeros(3), 1.0)
    assert found[:2].tolist() == point[:2].tolist()
    assert found[2] == pytest.approx(0.3, abs=0.1)
    assert length == 1


def test_nobody_is_asked_without_a_budget():
    X, _, offsets = table()
    users = Users(X, offsets, np.zeros(len(X)))
    found, length = calibrated(Adjustable(LAST, True), users, Logistic(), WAY, np.zeros(3), 0.0)
    assert found == pytest.approx(WAY)
    assert length == pytest.approx(1)


def test_a_way_of_no_length_stays_one():
    X, rng, offsets = table()
    users = Users(X, offsets, rng.integers(0, 2, len(X)).astype(float))
    found, length = calibrated(Adjustable(LAST, True), users, Logistic(), np.zeros(3), np.ones(3), 1.0)
    assert np.isfinite([*found, length]).all()
    assert found[:2].tolist() == [0.0, 0.0]
