"""``userdp.minimize``: where data, plan and randomness meet."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import userdp
from userdp.data import Users
from userdp.errors import InvalidInputError
from userdp.means import ConcentratedMean
from userdp.optimizers import DPSGD
from userdp.planning import rates
from userdp.problems import JaxLoss, L2Ball, Logistic, SquaredDistance

N, M, D = 400, 5, 3


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(1)
    return Users.from_rows(rng.normal([0.4, 0.7, -0.2], 0.3, size=(N * M, D)), np.repeat(np.arange(N), M))


def test_any_jax_function_is_a_loss(points):
    def function(theta, z):
        return 0.5 * jnp.sum((theta - z) ** 2)

    loss = JaxLoss(function, smoothness=1.0, strong_convexity=1.0)
    solution = userdp.minimize(
        loss,
        points,
        optimizer=DPSGD(40, 0.5, averaged_share=0.2),
        mean=ConcentratedMean(3.0, gate="deferred"),
        epsilon=9.0,
        delta=1e-3,
        random_state=0,
    )
    assert solution.point == pytest.approx(points.rows.mean(axis=0), abs=0.05)


def test_a_seed_repeats_bit_for_bit(points):
    arguments = {
        "optimizer": DPSGD(10, 0.3),
        "mean": ConcentratedMean(6.0, gate="deferred"),
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    first, second, other = (
        userdp.minimize(SquaredDistance(), points, **arguments, random_state=seed) for seed in (1, 1, 2)
    )
    assert first.point.tobytes() == second.point.tobytes()
    assert first.point.tobytes() != other.point.tobytes()
    assert first.privacy.seeded


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"optimizer": None}, "needs a plan"),
        ({"epsilon": None}, "needs a plan"),
        ({"domain": L2Ball(1.0)}, "belongs to the optimizer"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"start": [0.0, 0.0]}, "shape"),
        ({"max_items": 0}, "max_items"),
        ({"min_items": 0}, "min_items"),
        ({"mean": ConcentratedMean(6.0, gate="one-sided")}, "inside a loop"),
    ],
)
def test_bad_arguments(points, change, says):
    good = {
        "optimizer": DPSGD(10, 0.3),
        "mean": ConcentratedMean(6.0, gate="deferred"),
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    with pytest.raises((InvalidInputError, TypeError), match=says):
        userdp.minimize(SquaredDistance(), points, **{**good, **change}, random_state=0)


def test_a_plan_runs_and_its_users_must_fit():
    rng = np.random.default_rng(0)
    n, m, d = 1_000, 20, 3
    X = rng.normal(size=(n * m, d)) / math.sqrt(d)
    y = rng.random(n * m) < 1 / (1 + np.exp(-2 * X[:, 0]))
    plan = userdp.plan(n_users=n, items_per_user=m, n_features=d, epsilon=2.0, delta=1e-6, distance=2.0)
    users = Users.from_rows(X, np.repeat(np.arange(n), m), y)
    solution = userdp.minimize(Logistic(), users, plan=plan, random_state=0)
    assert solution.point[0] > 0.5
    with pytest.raises(InvalidInputError, match="the plan is for 1000 users"):
        userdp.minimize(Logistic(), users.take(np.arange(900)), plan=plan)
    with pytest.raises(InvalidInputError, match="not both"):
        userdp.minimize(Logistic(), users, plan=plan, epsilon=1.0)


def test_the_paper_s_plan_says_that_it_is_not_certified():
    rng = np.random.default_rng(0)
    n, m, d = 60, 1, 2
    users = Users.from_rows(rng.normal(size=(n * m, d)), np.arange(n))
    plan = userdp.plan(
        n_users=n, items_per_user=m, n_features=d, epsilon=9.0, delta=1e-3, calibration="paper"
    )
    assert plan.phases[0].rounds == rates.convex(n, m, d, 9.0, 1e-3).rounds
    with pytest.warns(userdp.PrivacyWarning):
        solution = userdp.minimize(SquaredDistance(), users, plan=plan, random_state=0)
    assert not solution.privacy.certified
