"""Training, measured: the paper's mode for real, the cost of a round, and users against dimension."""

import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize as scipy_minimize

import userdp
from benchmarks.measure import interleaved_seconds, write_result
from userdp.arrays import FloatArray
from userdp.data import Users
from userdp.engines import local_oracle
from userdp.engines.layout import blocks
from userdp.means import ConcentratedMean
from userdp.mechanisms import SeededNoise
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import L2Ball, Linear, Logistic


def logistic_rows(rng: np.random.Generator, rows: int, d: int) -> tuple[FloatArray, FloatArray]:
    """Features on the unit sphere, labels from a logistic model with coefficients of norm 1."""
    X = rng.normal(size=(rows, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.random(rows) < 1 / (1 + np.exp(-X @ np.full(d, 1 / math.sqrt(d))))
    return X, y.astype(float)


def paper_and_certified() -> dict[str, dict[str, float]]:
    """Run Algorithm 3 with the paper's T, and the certified plan at the same budget."""
    n, m, d, epsilon = 150, 2, 5, 9.0
    rng = np.random.default_rng(0)
    X, y = logistic_rows(rng, n * m, d)
    users = Users.from_rows(X, np.repeat(np.arange(n), m), y)
    test_X, test_y = logistic_rows(rng, 200_000, d)

    def risk(theta: FloatArray) -> float:
        z = test_X @ theta
        return float(np.mean(np.logaddexp(0, z) - test_y * z))

    best = scipy_minimize(risk, np.zeros(d)).fun
    result = {}
    for calibration in ("paper", "certified"):
        plan = userdp.plan(
            n_users=n, items_per_user=m, n_features=d, epsilon=epsilon, delta=1e-6, distance=1.0,
            calibration=calibration,
        )  # fmt: skip
        risks, seconds, halted = [], [], 0
        for seed in range(1 if calibration == "paper" else 5):
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", userdp.PrivacyWarning)
                solution = userdp.minimize(
                    Logistic(), users, domain=L2Ball(1.0), plan=plan, random_state=seed
                )
            seconds.append(time.perf_counter() - start)
            risks.append(risk(solution.point) - best)
            halted += solution.halted
        result[calibration] = {
            "rounds": plan.phases[0].rounds,
            "excess_risk": float(np.mean(risks)),
            "seconds": float(np.mean(seconds)),
            "halted": halted,
        }
    result["start"] = {"rounds": 0, "excess_risk": risk(np.zeros(d)) - best, "seconds": 0.0, "halted": 0}
    return result


def gradient_over_copy(*, ragged: bool) -> float:
    """Time of all users' gradients over that of copying the data once, at 10,000 users of 100 rows, float32."""
    n, m, d = 10_000, 100, 100
    rng = np.random.default_rng(0)
    items = rng.integers(1, 2 * m, n) if ragged else np.full(n, m)
    rows = rng.standard_normal((int(items.sum()), d), dtype=np.float32)
    targets = (rng.random(len(rows)) < 0.5).astype(np.float64)
    users = Users(rows, np.concatenate([[0], np.cumsum(items)]), targets)  # type: ignore[arg-type]
    oracle = local_oracle(Logistic(), users)
    target = np.empty_like(rows)
    gradients = jax.jit(oracle.user_gradients)
    with jax.enable_x64(True):  # as the optimizers run it
        theta, key = jnp.zeros(d), jax.random.key(0)
        gradients(oracle.data, theta, key).block_until_ready()
        seconds = interleaved_seconds(
            {
                "copy": lambda: np.copyto(target, rows),
                "gradient": lambda: gradients(oracle.data, theta, key).block_until_ready(),
            }
        )
    return seconds["gradient"] / seconds["copy"]


def overhead_microseconds() -> dict[str, float]:
    """Microseconds a round of a tiny problem takes, privately and as the bare arithmetic of gradient descent."""
    n, m, d, T = 1_000, 5, 10, 10_000
    rng = np.random.default_rng(0)
    X, y = logistic_rows(rng, n * m, d)
    oracle = local_oracle(Logistic(), Users.from_rows(X, np.repeat(np.arange(n), m), y))
    optimizer, noise = DPSGD(T, 0.01), SeededNoise(0)
    mean = ConcentratedMean(4 / math.sqrt(m), gate="deferred").calibrate(n, d, Budget(1.0, 1e-6), T)
    features = jnp.asarray(X, jnp.float32).reshape(n, m, d)
    targets = jnp.asarray(y, jnp.float32).reshape(n, m)

    def bare() -> Array:
        last: Array = _bare_rounds(features, targets, T).block_until_ready()
        return last

    bare()
    optimizer.run(oracle, mean, noise)
    seconds = interleaved_seconds(
        {"arithmetic": bare, "private": lambda: optimizer.run(oracle, mean, noise)}, repeats=3
    )
    return {name: value / T * 1e6 for name, value in seconds.items()}


@partial(jax.jit, static_argnums=2)
def _bare_rounds(features: Array, targets: Array, rounds: int) -> Array:
    """Each user's mean gradient by two products over one dense array, and a step along their mean."""

    def step(theta: Array, _: Array) -> tuple[Array, None]:
        residuals = jax.nn.sigmoid(features @ theta) - targets
        gradients = jnp.einsum("nm,nmd->nd", residuals, features) / targets.shape[1]
        return theta - 0.01 * gradients.mean(axis=0), None

    last: Array = jax.lax.scan(step, jnp.zeros(features.shape[2]), jnp.arange(rounds))[0]
    return last


def memory_over_data() -> dict[str, float]:
    """Bytes of the padded layout over those of the rows themselves, float32."""
    rng, n, d = np.random.default_rng(0), 20_000, 20
    laws = {
        "1 to 199 rows, uniform": rng.integers(1, 200, n),
        "1 to 2,000 rows, heavy tail": np.minimum(rng.zipf(1.6, n), 2_000),
    }
    ratios = {}
    for law, items in laws.items():
        rows = np.zeros((int(items.sum()), d), np.float32)
        users = Users(rows, np.concatenate([[0], np.cumsum(items)]), np.zeros(len(rows)))  # type: ignore[arg-type]
        laid_out = sum(leaf.nbytes for leaf in jax.tree.leaves(blocks(users)))
        ratios[law] = laid_out / (rows.nbytes + 4 * len(rows))
    return ratios


def users_against_dimension() -> list[dict[str, float]]:
    """Run 1,000 users with 4 rows each from d = 10 to d = 10,000; a refusal would raise."""
    n, m, T = 1_000, 4, 20
    rows = []
    for d in (10, 100, 1_000, 10_000):
        rng = np.random.default_rng(d)
        u = np.eye(1, d)[0]
        z = 0.5 * u + rng.standard_normal((n * m, d)) / math.sqrt(d)
        users = Users.from_rows(z, np.repeat(np.arange(n), m))
        mean = ConcentratedMean(4 / math.sqrt(m), gate="deferred")
        optimizer = DPSGD(T, 0.2, L2Ball(1.0))
        solution = userdp.minimize(
            Linear(), users, optimizer=optimizer, mean=mean, epsilon=1.0, delta=1e-6, random_state=0
        )
        rows.append({"d": d, "excess_risk": float(0.5 + 0.5 * solution.point[0])})
    return rows


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, all its threads included, on one core."""
    cores = os.sched_getaffinity(0)

    def move(cores: set[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)

    move({min(cores)})
    yield
    move(cores)


def main() -> None:
    with one_core():
        paper_mode = paper_and_certified()
    publish(
        {
            "paper_mode": paper_mode,
            "gradient_over_copy": {
                "even": gradient_over_copy(ragged=False),
                "ragged": gradient_over_copy(ragged=True),
            },
            "microseconds_per_round": overhead_microseconds(),
            "memory_over_data": memory_over_data(),
            "users_against_dimension": users_against_dimension(),
        }
    )


def publish(result: dict[str, Any]) -> None:
    """Write the measurements as JSON and as a page."""
    paper, dimension = result["paper_mode"], result["users_against_dimension"]
    even, ragged = result["gradient_over_copy"]["even"], result["gradient_over_copy"]["ragged"]
    micros = result["microseconds_per_round"]
    lines = [
        "# Training, measured",
        "",
        "## The paper's mode for real",
        "",
        "n = 150, m = 2, d = 5, epsilon = 9, delta = 1e-6; logistic regression on the unit ball; one core.",
        "",
        "| calibration | rounds | excess risk | seconds | halted runs |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {row['rounds']:,} | {row['excess_risk']:.4f} | {row['seconds']:.1f} | {row['halted']} |"
            for name, row in paper.items()
        ),
        "",
        "(start: the excess risk of the starting point.)",
        "",
        "## Cost of a round",
        "",
        "| measure | here | goal |",
        "|---|---|---|",
        f"| gradients / one copy of the data (10,000 users, 100 rows, d = 100, float32) | {even:.2f} | at most 3 |",
        f"| the same, 1 to 199 rows a user | {ragged:.2f} | |",
        f"| overhead a round beyond the arithmetic, n = 1,000, m = 5, d = 10, microseconds | "
        f"{micros['private'] - micros['arithmetic']:.0f} | under 100 |",
        f"| the bare arithmetic of such a round, two products over a dense array, microseconds | "
        f"{micros['arithmetic']:.0f} | |",
        *(
            f"| padded layout over the data, bytes, {law} | {ratio:.2f} | at most 1.5 |"
            for law, ratio in result["memory_over_data"].items()
        ),
        "",
        "## Users against dimension",
        "",
        "1,000 users of 4 rows, epsilon = 1: the gate passes at every dimension.",
        "",
        "| d | excess risk (of at most 1) |",
        "|---|---|",
        *(f"| {row['d']:,} | {row['excess_risk']:.3f} |" for row in dimension),
    ]
    write_result("training", "make bench-training", result, "\n".join(lines))


if __name__ == "__main__":
    main()
