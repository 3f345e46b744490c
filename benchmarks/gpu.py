"""The GPU, measured: gradients, exact friend counts and a training, each checked against the CPU beside it.

Needs JAX with CUDA, NumPy and SciPy alone: ``python -m benchmarks.gpu``.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import write_result
from userdp.data.users import Users
from userdp.engines.local import local_oracle
from userdp.means import ConcentratedMean
from userdp.means.friends import friend_counts
from userdp.means.gpu_friends import counts_on_gpu
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import Logistic

N, M, D, T = 100_000, 100, 100, 1_000


def milliseconds(job: Callable[[], Any], repeats: int = 20) -> float:
    """Best time of a job, its result waited for."""
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(job())  # type: ignore[no-untyped-call]
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def make_users(n: int) -> Users:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n * M, D), dtype=np.float32)
    rows /= np.float32(math.sqrt(D))
    targets = (rng.random(n * M, dtype=np.float32) < 1 / (1 + np.exp(-3 * rows[:, 0]))).astype(np.float64)
    return Users(rows, np.arange(n + 1) * M, targets)  # type: ignore[arg-type]


def gradients(users: Users) -> dict[str, float]:
    oracle = local_oracle(Logistic(), users, device="gpu")
    found = jax.jit(oracle.user_gradients)
    x = oracle.data[0].features
    theta, key = jnp.linspace(-1.0, 1.0, D), jax.random.key(0)

    reading = jax.jit(jnp.sum)
    with jax.enable_x64(True):
        result = {
            "gradients_ms": milliseconds(lambda: found(oracle.data, theta, key)),
            "read_ms": milliseconds(lambda: reading(x)),
        }
        few = users.take(np.arange(500))
        ours, cpu = (
            local_oracle(Logistic(), few, device=device).evaluate(np.linspace(-1, 1, D))
            for device in ("gpu", "cpu")
        )
        result["largest_difference"] = float(np.abs(ours - cpu).max() / np.abs(cpu).max())
        alone = local_oracle(Logistic(), users.take(np.arange(3)), device="gpu").evaluate(
            np.linspace(-1, 1, D)
        )
        result["same_bits_alone"] = float(alone.tobytes() == ours[:3].tobytes())
    return result


def counts() -> dict[str, float]:
    """Time counts of users none of whose pairs is settled by the triangle inequality; check a part of them."""
    rng = np.random.default_rng(0)
    R = 65536.0
    units = np.rint(rng.normal(size=(N, D)) * (R / (1.45 * math.sqrt(D))))
    with jax.enable_x64(True):
        counted = jax.jit(lambda x, present: counts_on_gpu(x, present, R))
        x, present = jnp.asarray(units), jnp.ones(N, bool)
        result = {"counts_ms": milliseconds(lambda: counted(x, present))}
        few = units[:3000].copy()
        few[:5] *= 40.0  # beyond two bytes
        few[5:9] = few[0] + [[R], [R + 1], [0.0], [1.0]] * np.eye(1, D)  # ties at the radius
        nobody = np.arange(3000) % 50 == 3
        found = np.asarray(counted(jnp.asarray(few), jnp.asarray(~nobody)))
    few[nobody] = np.nan
    result["same_as_cpu"] = float(np.array_equal(found, friend_counts(few, R)))
    result["share_of_friends"] = float(found.mean() / len(few))
    return result


def training(users: Users) -> dict[str, float]:
    oracle = local_oracle(Logistic(), users, device="gpu")
    optimizer = DPSGD(T, 1.0)
    mean = ConcentratedMean(1.0, gate="deferred").calibrate(N, D, Budget(1.0, 1e-6), T)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        optimizer.run(oracle, mean, SeededNoise(0))
        seconds.append(time.perf_counter() - start)
    del oracle
    few = users.take(np.arange(2_000))
    short = ConcentratedMean(1.0, gate="deferred").calibrate(2_000, D, Budget(1.0, 1e-6), 50)
    points = [
        DPSGD(50, 1.0).run(local_oracle(Logistic(), few, device=device), short, SeededNoise(0)).point
        for device in ("gpu", "cpu")
    ]
    difference = np.abs(points[0] - points[1]).max() / np.abs(points[1]).max()
    return {
        "first_seconds": seconds[0],
        "seconds": seconds[1],
        "point_difference": float(difference),
    }


def main() -> None:
    device = jax.devices()[0].device_kind
    result: dict[str, Any] = {"device": device}
    for name, part in (
        ("counts", counts),
        ("gradients", lambda: gradients(make_users(N))),
        ("training", lambda: training(make_users(N))),
    ):
        result[name] = part()
        print(name, result[name], flush=True)
    publish(result)


def publish(result: dict[str, Any]) -> None:
    g, c, t = result["gradients"], result["counts"], result["training"]
    lines = [
        f"# On a GPU: {result['device']}",
        "",
        f"{N:,} users, {M} rows each, d = {D}, float32 features; best of 20.",
        "",
        "| measure | here | goal |",
        "|---|---|---|",
        f"| all users' gradients, ms | {g['gradients_ms']:.2f} | at most 1.5 |",
        f"| one read of the features (their sum), ms | {g['read_ms']:.2f} | |",
        f"| largest difference of a gradient to the CPU's, relative | {g['largest_difference']:.1e} | |",
        f"| a user's gradient alone is bit for bit the same as in company | {_yes(g['same_bits_alone'])} | yes |",
        f"| exact friend counts of all users, no pair settled, ms | {c['counts_ms']:.1f} | at most 30 |",
        f"| counts equal the CPU's on 3,000 users (ties, outliers, nulls) | {_yes(c['same_as_cpu'])} | yes |",
        f"| training, T = {T:,} rounds from noise to gate, certified mean, users on the card, s "
        f"| {t['seconds']:.1f} | under 10 |",
        f"| the same with compilation, s | {t['first_seconds']:.1f} | |",
        "| answer after 50 rounds on 2,000 users against the CPU's, same seed, relative "
        f"| {t['point_difference']:.1e} | |",
    ]
    write_result("gpu", "python -m benchmarks.gpu", result, "\n".join(lines))


def _yes(value: float) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    main()
