"""DP-SGD and localization against solutions that are known otherwise, with the noise silenced."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

import userdp
from tests.conftest import SilentNoise
from userdp.data import Users
from userdp.engines import local_oracle
from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means import ClippedMean, ConcentratedMean
from userdp.optimizers import DPSGD, Localization, Phase
from userdp.privacy import Budget
from userdp.problems import Box, JaxLoss, L2Ball, Linear, Logistic, Regularized, Simplex, SquaredDistance

N, M, D = 400, 5, 3
BUDGET = Budget(1.0, 1e-6)


@pytest.fixture(scope="module")
def users():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N * M, D)) / np.sqrt(D)
    y = rng.random(N * M) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5]))
    return Users.from_rows(X, np.repeat(np.arange(N), M), y)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(1)
    return Users.from_rows(rng.normal([0.4, 0.7, -0.2], 0.3, size=(N * M, D)), np.repeat(np.arange(N), M))


def run(loss, users, rounds, step, domain=None, share=1.0, radius=6.0):
    optimizer = DPSGD(rounds, step, *([domain] if domain is not None else []), averaged_share=share)
    oracle = local_oracle(loss, users)
    mean = ConcentratedMean(radius, gate="deferred").calibrate(N, oracle.dimension, BUDGET, rounds)
    return optimizer.run(oracle, mean, SilentNoise())


def test_squared_distance_finds_the_mean(points):
    solution = run(SquaredDistance(), points, 60, 0.5, share=0.2)
    assert solution.point == pytest.approx(points.rows.mean(axis=0), abs=1e-3)
    assert solution.privacy.certified
    assert not solution.halted


@pytest.mark.parametrize("domain", [L2Ball(0.5), Box([-0.1] * 3, [0.3] * 3), Simplex()])
def test_projection_gives_the_constrained_optimum(points, domain):
    solution = run(SquaredDistance(), points, 60, 0.5, domain, share=0.2)
    expected = np.asarray(domain.project(jnp.asarray(points.rows.mean(axis=0))))
    assert solution.point == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_logistic_regression_equals_scipy(users, strength):
    def risk(theta):
        z = users.rows @ theta
        return np.mean(np.logaddexp(0, z) - users.targets * z) + strength / 2 * theta @ theta

    loss = Regularized(Logistic(), strength) if strength else Logistic()
    solution = run(loss, users, 300, 4.0 if not strength else 2.0, share=0.1)
    assert solution.point == pytest.approx(scipy_minimize(risk, np.zeros(D)).x, abs=0.02)


def test_any_jax_function_is_a_loss(points):
    def function(theta, z):
        return 0.5 * jnp.sum((theta - z) ** 2)

    loss = JaxLoss(function, smoothness=1.0, strong_convexity=1.0)
    solution = run(loss, points, 60, 0.5, share=0.2)
    assert solution.point == pytest.approx(points.rows.mean(axis=0), abs=1e-3)


def test_the_answer_is_the_average_iterate(points):
    """Linear losses move the iterate by the same step each round: the average lies halfway."""
    T, step = 10, 0.01
    solution = run(Linear(), points, T, step)
    assert solution.point == pytest.approx(-step * (T + 1) / 2 * points.rows.mean(axis=0), abs=1e-4)


def test_localization_uses_disjoint_users_of_doubling_sizes(points):
    seen = []

    def oracle_of(number, chosen):
        seen.append(set(chosen.tolist()))
        return local_oracle(SquaredDistance(), points.take(chosen))

    sizes = userdp.planning.rates.phase_sizes(N, M)
    phases = [Phase(size, DPSGD(30, 0.5), ClippedMean(6.0).calibrate(size, D, BUDGET, 30)) for size in sizes]
    solution = Localization(phases).run(oracle_of, N, SilentNoise())
    assert [len(part) for part in seen] == list(sizes)
    assert len(set().union(*seen)) == sum(sizes) <= N
    assert all(b == 2 * a for a, b in itertools.pairwise(sizes))
    assert solution.point == pytest.approx(points.rows.mean(axis=0), abs=0.15)


def test_scattered_gradients_release_nothing(points):
    with pytest.raises(NotConcentratedError):
        run(SquaredDistance(), points, 5, 0.5, radius=0.01)


def test_the_paper_s_mean_halts_at_the_start(points):
    oracle = local_oracle(SquaredDistance(), points)
    mean = ConcentratedMean(0.01, calibration="paper").calibrate(N, D, Budget(9.0, 1e-6), 5)
    start = np.array([0.1, 0.2, 0.3])
    solution = DPSGD(5, 0.5).run(oracle, mean, userdp.mechanisms.SeededNoise(0), start)
    assert solution.halted
    assert solution.point == pytest.approx(start)
    assert not solution.privacy.certified


def test_one_user_moves_one_round_by_at_most_the_sensitivity(points):
    """Neighbouring data, one round, no noise: the step moves by at most step * Delta_H."""
    mean = ConcentratedMean(3.0, gate="deferred").calibrate(N, D, BUDGET, 1)
    bound = mean.mean_event(mean.setting.index).sensitivity * mean.lattice.answer_step
    optimizer = DPSGD(1, 1.0)
    moved = []
    for value in (-50.0, 0.0, 1.0, 1.8, 1e30, np.nan):
        rows = points.rows.copy()
        rows[:M] = value
        neighbour = Users(rows, points.offsets)
        a, b = (
            optimizer.run(local_oracle(SquaredDistance(), data), mean, SilentNoise()).point
            for data in (points, neighbour)
        )
        moved.append(np.linalg.norm(a - b))
    assert max(moved) <= bound * (1 + 1e-9)
    assert max(moved) > 0.1 * bound


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


@pytest.mark.parametrize("options", [{"rounds": 0}, {"step_size": 0.0}, {"averaged_share": 0.0}])
def test_bad_numbers(options):
    with pytest.raises(InvalidInputError):
        DPSGD(**{"rounds": 5, "step_size": 0.1, **options})
