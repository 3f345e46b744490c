"""Algorithm 3: right without noise, projected, averaged, halting, one compiled loop."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize

from userdp.data import Users
from userdp.engines.local import GradientOracle, local_oracle
from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means import AdaptiveClippedMean, ClippedMean, ConcentratedMean
from userdp.means.friends import concentration_index, friend_counts
from userdp.means.sensitivity import mean_sensitivity
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.optimizers import dp_sgd as module
from userdp.optimizers import rounds as loop
from userdp.privacy import Budget
from userdp.problems import Box, L2Ball, Linear, Logistic, Regularized, Simplex, Squared, SquaredDistance

BUDGET = Budget(4.0, 1e-6)
N, M, D = 200, 4, 3


def data(seed=0, targets=True):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N * M, D))
    y = X @ [0.8, -0.5, 0.3] + 0.1 * rng.normal(size=N * M)
    return X, y, Users.from_rows(X, np.repeat(np.arange(N), M), y if targets else None)


def run(loss, users, optimizer, noise, *, start=None, mean=None):
    """Run with a clipped mean that clips nobody, unless told otherwise."""
    oracle = local_oracle(loss, users, dtype=np.float64)
    mean = mean if mean is not None else ClippedMean(10.0)
    calibrated = mean.calibrate(users.n_users, oracle.dimension, BUDGET, optimizer.rounds)
    return optimizer.run(oracle, calibrated, noise, start)


def test_iterates_projections_and_averages_are_those_of_the_plain_loop(silent_noise):
    """SGD in five lines of NumPy, on exact means."""
    X, _, users = data(targets=False)
    domain, start = L2Ball(0.5), np.array([3.0, 0.0, 4.0])
    for share in (1.0, 0.5, 0.01):
        theta, iterates = start / 10, []
        for _ in range(7):
            theta = theta - 0.7 * (theta - X.mean(axis=0) + 0.25 * theta)
            theta = theta * min(1, 0.5 / np.linalg.norm(theta))
            iterates.append(theta)
        expected = np.mean(iterates[-max(1, round(share * 7)) :], axis=0)
        optimizer = DPSGD(7, 0.7, domain, averaged_share=share)
        mean = ConcentratedMean(10.0, gate="deferred") if share == 1 else None
        loss = Regularized(SquaredDistance(), 0.25)
        solution = run(loss, users, optimizer, silent_noise, start=start, mean=mean)
        assert solution.point == pytest.approx(expected, abs=1e-3)  # the lattice of a radius of 10
        assert solution.privacy.certified
        assert not solution.halted


def last(rounds, step, domain=module.EVERYWHERE):
    return DPSGD(rounds, step, domain, averaged_share=0.05)


def test_least_squares_and_ridge_have_their_closed_forms(silent_noise):
    X, y, users = data()
    for ridge in (0.0, 0.5):
        loss = Regularized(Squared(), ridge) if ridge else Squared()
        expected = np.linalg.solve(X.T @ X / len(X) + ridge * np.eye(D), X.T @ y / len(X))
        assert run(loss, users, last(200, 0.5), silent_noise).point == pytest.approx(expected, abs=2e-3)


def test_constrained_problems_agree_with_scipy(silent_noise):
    X, y, users = data()

    def risk(theta):
        return 0.5 * np.mean((X @ theta - y) ** 2)

    def solve(constraint, domain):
        expected = minimize(risk, np.full(D, 1 / 3), method="SLSQP", constraints=constraint).x
        solution = run(Squared(), users, last(200, 0.5, domain), silent_noise)
        assert solution.point == pytest.approx(expected, abs=3e-3)
        with jax.enable_x64(True):
            assert bool(domain.contains(solution.point, tolerance=1e-9))

    solve({"type": "ineq", "fun": lambda t: 0.5**2 - t @ t}, L2Ball(0.5))
    solve([{"type": "ineq", "fun": lambda t: t}, {"type": "eq", "fun": lambda t: t.sum() - 1}], Simplex())
    box = Box(np.array([-0.2, -0.2, -0.2]), np.array([0.4, 0.4, 0.4]))
    expected = lsq_linear(X, y, bounds=(-0.2, 0.4)).x
    assert run(Squared(), users, last(200, 0.5, box), silent_noise).point == pytest.approx(expected, abs=3e-3)


def test_logistic_regression_agrees_with_scipy(silent_noise):
    X, y, users = data()
    labels = (y > 0).astype(float)
    users = Users(users.rows, users.offsets, labels)
    penalised = minimize(
        lambda t: np.mean(np.logaddexp(0, X @ t) - labels * (X @ t)) + 0.05 * t @ t, np.zeros(D), tol=1e-12
    ).x
    solution = run(Regularized(Logistic(), 0.1), users, last(200, 2.0), silent_noise)
    assert solution.point == pytest.approx(penalised, abs=5e-3)


def test_a_linear_loss_ends_at_the_edge_with_little_noise():
    """Many users and a large budget instead of a silent source."""
    rng = np.random.default_rng(0)
    z = np.array([0.6, 0.8]) + 0.1 * rng.normal(size=(20_000, 2))
    users = Users.from_rows(z, np.arange(20_000))
    mean = ConcentratedMean(1.5, gate="deferred").calibrate(20_000, 2, Budget(9.0, 1e-6), 30)
    solution = DPSGD(30, 0.5, L2Ball(1.0)).run(local_oracle(Linear(), users), mean, SeededNoise(0))
    assert solution.point @ [0.6, 0.8] < -0.95


def test_an_l2_projection_keeps_two_runs_together(silent_noise):
    """Stability: a step of at most 2/beta on a convex loss never drives two runs apart."""
    _, _, users = data()
    distance = np.inf
    for rounds in (1, 4):
        ends = [
            run(
                Squared(),
                users,
                DPSGD(rounds, 1.0, L2Ball(1.0), averaged_share=1e-9),
                silent_noise,
                start=start,
            ).point
            for start in (np.array([0.9, 0.0, 0.0]), np.array([-0.5, 0.5, 0.5]))
        ]
        assert np.linalg.norm(ends[0] - ends[1]) <= distance + 1e-3
        distance = np.linalg.norm(ends[0] - ends[1])


def test_replacing_one_user_moves_one_round_by_no_more_than_the_sensitivity(silent_noise):
    """The contract of a whole training: from data to the answer, with the noise silenced."""
    rng = np.random.default_rng(0)
    X, _, users = data(targets=False)
    calibrated = ConcentratedMean(1.0, gate="deferred").calibrate(N, D, BUDGET, 1)
    H, step, used = calibrated.setting.index, 0.3, 0.0
    bound = mean_sensitivity(H, N, 1.0) + np.sqrt(D) * calibrated.lattice.answer_step
    for _ in range(40):
        rows = X * 0.1
        rows[: M * rng.integers(0, N - H + 3)] += rng.normal(size=D) * 0.5
        other = rows.copy()
        other[-M:] = rng.normal(size=D) * rng.choice([0.3, 1.0, 1e6]) if rng.random() < 0.9 else np.nan
        points, indices = [], []
        for table in (rows, other):
            oracle = local_oracle(SquaredDistance(), Users(table, users.offsets))
            private = module.in_loop(calibrated)
            with jax.enable_x64(True):
                # Past the gate: its answer would be withheld, here it is looked at.
                point, state = loop.run_rounds(
                    loop.Descent(1, 0, step, module.EVERYWHERE, 0.0),
                    private,
                    oracle,
                    jnp.zeros(D),
                    private.draw(silent_noise),
                    jax.random.key(0),
                )
            points.append(np.asarray(point))
            indices.append(int(state))
            vectors = -Users(table, users.offsets).means()
            counts = friend_counts(calibrated.lattice.round(vectors.astype(np.float32).astype(float)), 2**13)
            assert abs(int(state) - concentration_index(counts)) <= 1  # float32 gradients may sit on a tie
        assert abs(indices[0] - indices[1]) <= 1
        if max(indices) >= H:
            moved = np.linalg.norm(points[0] - points[1])
            assert moved <= step * bound * (1 + 1e-9)
            used = max(used, moved / (step * bound))
    assert used > 0.02


def test_refused_runs_release_nothing():
    X, _, _ = data(targets=False)
    scattered = Users.from_rows(X + 100 * np.repeat(np.arange(N), M)[:, None], np.repeat(np.arange(N), M))
    mean = ConcentratedMean(1.0, gate="deferred")
    with pytest.raises(NotConcentratedError) as error:
        run(SquaredDistance(), scattered, DPSGD(5, 0.1), SeededNoise(0), mean=mean)
    assert not any(character.isdigit() for character in str(error.value))


def test_the_paper_s_mean_halts_at_the_start():
    X, _, _ = data(targets=False)
    scattered = Users.from_rows(X + 100 * np.repeat(np.arange(N), M)[:, None], np.repeat(np.arange(N), M))
    start = np.array([0.3, 0.4, 0.0])
    paper = ConcentratedMean(1.0, calibration="paper")
    budget = Budget(9.0, 1e-6)
    oracle = local_oracle(SquaredDistance(), scattered)
    solution = DPSGD(5, 0.1, L2Ball(0.25)).run(
        oracle, paper.calibrate(N, D, budget, 5), SeededNoise(0), start
    )
    assert solution.halted
    assert not solution.privacy.certified
    assert solution.point == pytest.approx(start / 2)


def test_null_users_stay_out(silent_noise):
    X, _, users = data(targets=False)
    users.rows[: 3 * M] = np.nan
    users.rows[3 * M] = 1e200
    mean = ConcentratedMean(10.0, gate="deferred", agreement=0.9)
    solution = run(SquaredDistance(), users, last(60, 0.5), silent_noise, mean=mean)
    assert solution.point == pytest.approx(X[4 * M :].mean(axis=0), abs=2e-3)


@pytest.fixture
def traces(monkeypatch):
    """A list that grows whenever a step is traced, which is when a loop is compiled."""
    seen, advance = [], loop._advance

    def counting(*arguments):
        seen.append(1)
        return advance(*arguments)

    monkeypatch.setattr(loop, "_advance", counting)
    return seen


def assert_the_first_alone_compiles(runs, traces):
    first, *others = runs
    first()
    assert traces
    traces.clear()
    for other in others:
        other()
    assert not traces


def test_all_rounds_run_in_one_compiled_loop():
    """The oracle is traced, not called round by round."""
    _, _, users = data(targets=False)
    calls = []
    plain = local_oracle(SquaredDistance(), users)

    def counting(blocks, theta, key):
        calls.append(1)
        return plain.user_gradients(blocks, theta, key)

    mean = ClippedMean(10.0).calibrate(N, D, BUDGET, 1_000)
    oracle = GradientOracle(plain.data, counting, 0.0, N, D)
    DPSGD(1_000, 0.1).run(oracle, mean, SeededNoise(0))
    assert len(calls) <= 2


@pytest.mark.parametrize(
    "mean",
    [
        ConcentratedMean(9.125, gate="deferred"),
        ConcentratedMean(9.125, calibration="paper"),
        ClippedMean(9.125),
        AdaptiveClippedMean(9.125, warmup=3),
    ],
    ids=["certified", "paper", "clipped", "adaptive"],
)
def test_other_data_and_an_equal_domain_compile_nothing(mean, traces):
    def one(seed):
        _, _, users = data(seed, targets=False)
        optimizer = DPSGD(4, 0.1, L2Ball(0.875, [0.1, 0.2, 0.3]))
        run(SquaredDistance(), users, optimizer, SeededNoise(seed), mean=mean)

    assert_the_first_alone_compiles([partial(one, seed) for seed in (1, 2)], traces)


def test_other_numbers_rounds_and_sizes_of_a_clipped_run_compile_nothing(traces):
    rng = np.random.default_rng(0)

    def one(step, radius, ridge, rounds):
        groups = rng.permutation(np.repeat(np.arange(N), rng.permutation(np.arange(N) % 5 + 1)))
        X = rng.normal(size=(len(groups), D))
        mean = ClippedMean(radius, centre=X[0]).calibrate(N, D, BUDGET, rounds)
        oracle = replace(local_oracle(SquaredDistance(), Users.from_rows(X, groups)), ridge=ridge)
        DPSGD(rounds, step).run(oracle, mean, SeededNoise(0))

    settings = (0.1, 1.0, 0.0, 3), (0.3, 0.7, 0.5, 50)
    assert_the_first_alone_compiles([partial(one, *setting) for setting in settings], traces)


def test_other_numbers_of_an_adaptive_run_compile_nothing(traces):
    _, _, users = data(targets=False)

    def one(radius, quantile, rate, rounds):
        mean = AdaptiveClippedMean(radius, quantile=quantile, learning_rate=rate, warmup=2)
        run(SquaredDistance(), users, DPSGD(rounds, 0.1), SeededNoise(0), mean=mean)

    settings = (1.0, 0.5, 0.2, 5), (0.3, 0.75, 0.1, 60)
    assert_the_first_alone_compiles([partial(one, *setting) for setting in settings], traces)


def test_same_seed_same_answer():
    _, _, users = data()
    points = [run(Squared(), users, DPSGD(4, 0.1), SeededNoise(seed)).point.tobytes() for seed in (3, 3, 4)]
    assert points[0] == points[1] != points[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.1), "rounds"),
        ((2.5, 0.1), "rounds"),
        ((True, 0.1), "rounds"),
        ((2, 0.0), "step_size"),
        ((2, float("nan")), "step_size"),
        ((2, float("inf")), "step_size"),
        ((2, "x"), "step_size"),
        ((2, 0.1, 3.0), "domain"),
        ((2, 0.1, module.EVERYWHERE, 0.0), "averaged_share"),
        ((2, 0.1, module.EVERYWHERE, 1.5), "averaged_share"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        DPSGD(*arguments)


def test_a_mean_for_other_rounds_users_or_starts_is_refused():
    _, _, users = data()
    oracle = local_oracle(Squared(), users)
    mean = ConcentratedMean(1.0, gate="deferred")
    with pytest.raises(InvalidInputError, match="calibrated for 3 rounds"):
        DPSGD(2, 0.1).run(oracle, mean.calibrate(N, D, BUDGET, 3), SeededNoise(0))
    with pytest.raises(InvalidInputError, match="calibrated for vectors of shape"):
        DPSGD(2, 0.1).run(oracle, mean.calibrate(2 * N, D, BUDGET, 2), SeededNoise(0))
    for start, message in (([0.0], "shape"), ([0.0, np.nan, 0.0], "finite")):
        with pytest.raises(InvalidInputError, match=message):
            DPSGD(2, 0.1).run(oracle, mean.calibrate(N, D, BUDGET, 2), SeededNoise(0), np.array(start))


def test_a_coordinate_without_a_step_stays_and_steps_are_not_negative():
    rng = np.random.default_rng(0)
    users = Users.from_rows(rng.normal(size=(60, 2)), np.repeat(np.arange(20), 3), rng.normal(size=60))
    start = np.array([0.5, -0.25])
    mean = ClippedMean(1.0).calibrate(20, 2, Budget(1.0, 1e-6), 4)
    oracle = local_oracle(Squared(), users)
    point = DPSGD(4, np.array([0.1, 0.0])).run(oracle, mean, SeededNoise(0), start).point
    assert point[1] == start[1]
    assert point[0] != start[0]
    for steps in ([0.1, -0.1], [0.1, np.nan], [0.1, np.inf]):
        with pytest.raises(InvalidInputError, match="step_size"):
            DPSGD(4, np.array(steps))
