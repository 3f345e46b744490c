"""Training, measured: the paper's mode for real, gradients against a copy, overhead of a round, growth in d."""

import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import userdp
from benchmarks.measure import interleaved_seconds, write_result
from userdp.arrays import FloatArray
from userdp.data import Users
from userdp.engines.local import GradientOracle, local_oracle
from userdp.means import ConcentratedMean
from userdp.means.loops import in_loop
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.optimizers.dp_sgd import Solution
from userdp.planning import Plan
from userdp.privacy import Budget
from userdp.problems import L2Ball, Linear, Logistic, SquaredDistance

DELTA = 1e-6
SLOPE = 0.4
ROUNDS = 10_000


def linear_problem(n: int, m: int, d: int, seed: int) -> tuple[Users, Callable[[FloatArray], float]]:
    """Linear losses of norm about 1 on the unit ball: mean slope 0.4, the rest spread over all directions."""
    rng = np.random.default_rng([seed, d])
    u = rng.normal(size=d)
    u /= np.linalg.norm(u)
    z = rng.standard_normal((n * m, d)) * math.sqrt((1 - SLOPE**2) / d)
    z /= np.maximum(1, np.linalg.norm(z, axis=1, keepdims=True) / (1 - SLOPE))
    users = Users.from_rows(z + SLOPE * u, np.repeat(np.arange(n), m))
    return users, lambda theta: float(SLOPE * (u @ theta + 1))


def trained(plan: Plan, users: Users, seed: int | None) -> Solution:
    return userdp.minimize(Linear(), users, plan=plan, domain=L2Ball(1.0), random_state=seed)


def paper_and_certified() -> dict[str, Any]:
    """Run the paper's settings to the letter, all of its rounds, with secure noise; and the certified plan."""
    n, m, d, epsilon = 150, 2, 5, 9.0
    users, excess = linear_problem(n, m, d, 0)
    result: dict[str, Any] = {"n_users": n, "items_per_user": m, "n_features": d, "epsilon": epsilon}
    result["excess at the start"] = excess(np.zeros(d))
    for calibration in ("paper", "certified"):
        plan = userdp.plan(
            n_users=n,
            items_per_user=m,
            n_features=d,
            epsilon=epsilon,
            delta=DELTA,
            smoothness=math.inf if calibration == "paper" else 0.0,
            calibration=calibration,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", userdp.PrivacyWarning)
            start = time.perf_counter()
            solution = trained(plan, users, None)
            seconds = time.perf_counter() - start
        result[calibration] = {
            "rounds": plan.phases[0].rounds,
            "radius": plan.phases[0].radius,
            "noise_std": plan.phases[0].noise_std,
            "predicted excess": plan.excess_risk,
            "excess": excess(solution.point),
            "halted": solution.halted,
            "certified": solution.privacy.certified,
            "seconds": seconds,
        }
    return result


def copy_on_all_cores(source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    cores = len(os.sched_getaffinity(0))
    edges = np.linspace(0, len(source), cores + 1).astype(int)
    threads = [
        threading.Thread(target=np.copyto, args=(target[a:b], source[a:b])) for a, b in pairwise(edges)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def gradients_over_copy() -> dict[str, float]:
    """One evaluation of all users' gradients over one copy of the data, equal and ragged users."""
    n, m, d = 10_000, 100, 100
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n * m, d), dtype=np.float32)
    other = np.empty_like(rows)
    y = rng.integers(0, 2, size=n * m).astype(np.float32)
    cuts = np.sort(rng.choice(np.arange(1, n * m), size=n - 1, replace=False))
    offsets = {"equal": np.arange(0, n * m + 1, m), "ragged": np.concatenate([[0], cuts, [n * m]])}
    ratios = {}
    for name, borders in offsets.items():
        oracle = local_oracle(Logistic(), Users(rows, borders, y))  # type: ignore[arg-type]
        with jax.enable_x64(True):
            gradients = jax.jit(oracle.user_gradients)
            arguments = oracle.data, jnp.zeros(d), jax.random.key(0)

            def evaluate(run: Any = gradients, arguments: Any = arguments) -> None:
                run(*arguments).block_until_ready()

            evaluate()
            seconds = interleaved_seconds(
                {
                    "gradients": evaluate,
                    "copy": lambda: np.copyto(other, rows),
                    "copy on all cores": lambda: copy_on_all_cores(rows, other),
                },
                repeats=5,
            )
        ratios[name] = seconds["gradients"] / min(seconds["copy"], seconds["copy on all cores"])
        laid_out = sum(block.features.nbytes for block in oracle.data)
        ratios[f"{name}, memory over data"] = laid_out / rows.nbytes
    return ratios


@partial(jax.jit, static_argnums=(0, 1, 2))
def _plain_loop(step_size: float, user_gradients: Any, rounds: int, data: Any, theta: Any, draws: Any) -> Any:
    """Run the arithmetic alone: the same gradients, their plain mean, the same step and average."""

    def step(carry: Any, draw: Any) -> tuple[Any, None]:
        theta, total = carry
        vectors = user_gradients(data, theta, jax.random.key(0))
        theta = theta - step_size * (jnp.mean(vectors.astype(jnp.float64), axis=0) + 1e-9 * draw)
        return (theta, total + theta), None

    return jax.lax.scan(step, (theta, theta), draws, length=rounds)[0]


def overhead_of_a_round() -> dict[str, float]:
    """Microseconds a round beyond the arithmetic, at a tiny problem and 10,000 rounds."""
    n, d = 1_000, 10
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, d)) / math.sqrt(d)
    half = z.copy()
    half[::10] = np.nan
    settings: dict[str, tuple[FloatArray, float, float]] = {
        "all friends": (z, 6.0, 1.0),
        "a tenth null": (half, 6.0, 0.85),
        "some users open": (z, 2.8, 0.9),
        "all pairs": (z, 1.6, 0.6),
    }
    result = {}
    for name, (rows, radius, agreement) in settings.items():
        oracle = local_oracle(SquaredDistance(), Users.from_rows(rows, np.arange(n)))
        T = ROUNDS if name == "all friends" else ROUNDS // 10
        mean = ConcentratedMean(radius, gate="deferred", agreement=agreement)
        result[name] = _overhead(oracle, mean, DPSGD(T, 0.01), n, d)
    return result


def _overhead(oracle: GradientOracle, mean: ConcentratedMean, optimizer: DPSGD, n: int, d: int) -> float:
    T = optimizer.rounds
    calibrated = mean.calibrate(n, d, Budget(4.0, DELTA), T)
    draws = in_loop(calibrated).draw(SeededNoise(0))

    def private() -> None:
        with suppress(userdp.NotConcentratedError):  # the time is the same
            optimizer.run(oracle, calibrated, SeededNoise(0))

    def plain() -> None:
        SeededNoise(0).discrete_gaussian(1e6, T * d)
        with jax.enable_x64(True):
            arguments = oracle.data, jnp.zeros(d), jnp.asarray(draws)
            loop = _plain_loop(optimizer.step_size, oracle.user_gradients, T, *arguments)
            jax.block_until_ready(loop)  # type: ignore[no-untyped-call]

    private()
    plain()
    seconds = interleaved_seconds({"private": private, "plain": plain}, repeats=3)
    return (seconds["private"] - seconds["plain"]) / T * 1e6


def growth_with_the_dimension() -> list[dict[str, float]]:
    """Train on 1,000 users at every d: the excess grows like sqrt(d) until it is the whole slope."""
    n, m, epsilon = 1_000, 2, 4.0
    rows = []
    for d, seeds in ((10, 5), (100, 5), (1_000, 3), (10_000, 1)):
        excesses, passed, seconds = [], 0, 0.0
        plan = userdp.plan(
            n_users=n,
            items_per_user=m,
            n_features=d,
            epsilon=epsilon,
            delta=DELTA,
            smoothness=0.0,
            max_rounds=50 if d < 10_000 else 12,
        )
        for seed in range(seeds):
            users, excess = linear_problem(n, m, d, seed)
            start = time.perf_counter()
            try:
                excesses.append(excess(trained(plan, users, seed).point))
                passed += 1
            except userdp.NotConcentratedError:
                pass
            seconds += (time.perf_counter() - start) / seeds
        mean_excess = float(np.mean(excesses)) if excesses else math.nan
        rows.append(
            {
                "d": d,
                "passed": passed / seeds,
                "excess": mean_excess,
                "excess over sqrt(d)": mean_excess / math.sqrt(d),
                "predicted": plan.excess_risk,
                "rounds": plan.phases[0].rounds,
                "seconds": seconds,
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    paper = paper_and_certified()
    print(paper, flush=True)
    ratios = gradients_over_copy()
    print(ratios, flush=True)
    overhead = overhead_of_a_round()
    print(overhead, flush=True)
    growth = growth_with_the_dimension()
    result = {
        "paper and certified": paper,
        "gradients over copy": ratios,
        "overhead, microseconds a round": overhead,
        "growth with d": growth,
    }
    write_result("training", "make bench-training", result, _table(paper, ratios, overhead, growth))


def _table(
    paper: dict[str, Any],
    ratios: dict[str, float],
    overhead: dict[str, float],
    growth: list[dict[str, float]],
) -> str:
    both = "\n".join(
        f"| {name} | {run['rounds']:,} | {run['noise_std']:.3g} | {run['excess']:.3f} | {run['halted']} "
        f"| {run['certified']} | {run['seconds']:.0f} |"
        for name in ("paper", "certified")
        for run in [paper[name]]
    )
    speed = "\n".join(
        [
            f"| gradients / copy of the data, equal users | {ratios['equal']:.2f} | at most 3 |",
            f"| the same, ragged users (1 to about 1,000 items) | {ratios['ragged']:.2f} | at most 3 |",
            f"| memory of the layout / data, equal | {ratios['equal, memory over data']:.2f} | at most 1.5 |",
            f"| the same, ragged | {ratios['ragged, memory over data']:.2f} | at most 1.5 |",
            *(
                f"| overhead a round beyond the arithmetic, {name}, microseconds | {value:.0f} "
                f"| {'under 100' if name == 'all friends' else ''} |"
                for name, value in overhead.items()
            ),
        ]
    )
    grown = "\n".join(
        f"| {row['d']:,} | {row['passed']:.0%} | {row['excess']:.3f} | {row['excess over sqrt(d)']:.4f} "
        f"| {row['predicted']:.3f} | {row['rounds']} | {row['seconds']:.1f} |"
        for row in growth
    )
    return (
        "# Training\n\n"
        f"## The paper's settings for real\n\nLinear losses on the unit ball, n = {paper['n_users']}, "
        f"m = {paper['items_per_user']}, d = {paper['n_features']}, epsilon = {paper['epsilon']:g}, delta = {DELTA:g}, "
        f"secure noise; the starting point's excess risk is {paper['excess at the start']:.3f}.\n\n"
        "| calibration | rounds | noise a round | excess risk | halted | certified | seconds |\n"
        f"|---|---|---|---|---|---|---|\n{both}\n\n"
        "## Speed\n\nGradients: n = 10,000 users, a million rows, d = 100, float32. Overhead: n = 1,000, d = 10.\n\n"
        f"| measure | here | goal |\n|---|---|---|\n{speed}\n\n"
        "## One thousand users in any dimension\n\nm = 2, epsilon = 4; the whole slope is an excess of 0.4.\n\n"
        "| d | gate passed | excess risk | excess/sqrt(d) | predicted | rounds | seconds |\n"
        f"|---|---|---|---|---|---|---|\n{grown}\n"
    )


if __name__ == "__main__":
    main()
