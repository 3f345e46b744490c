"""Measured rates: how the excess risk falls with users, items and epsilon, and grows with the dimension.

Three families of synthetic problems on which the privacy term dominates, each run through the library's own
optimizers with the certified mean behind the deferred gate:

* convex: linear losses on a ball; the averaged iterate pays for the steps that noise forces to be small;
* nonsmooth: absolute deviation of noise-free labels, sharp at its optimum, by subgradients;
* strongly_convex: squared distance, by localization.

The friend radius is 4/sqrt(m) throughout: users' spread is 1/sqrt(m) in all problems and dimensions.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import linregress
from scipy.stats import t as student

import userdp
from benchmarks.measure import RESULTS, write_result, write_whole
from userdp.arrays import FloatArray
from userdp.data import Users
from userdp.engines.local import Objective
from userdp.means.certified import deferred_setting
from userdp.means.sensitivity import mean_sensitivity
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import Absolute, L2Ball, Linear, SquaredDistance

DELTA = 1e-6
# Localization ends on one noisy point where descent averages, so its risk varies more from seed to seed.
SEEDS = {"convex": 2, "nonsmooth": 2, "strongly_convex": 10}


@dataclass(frozen=True)
class Size:
    """One experiment's public numbers."""

    n: int
    m: int
    d: int
    epsilon: float

    @property
    def radius(self) -> float:
        return 4 / math.sqrt(self.m)

    @property
    def private_error(self) -> float:
        """sigma_1 sqrt(d): the norm of the noise on one private mean gradient."""
        setting = deferred_setting(self.n, Budget(self.epsilon, DELTA))
        return mean_sensitivity(setting.index, self.n, self.radius) / setting.mean_mu * math.sqrt(self.d)

    def groups(self) -> FloatArray:
        return np.repeat(np.arange(self.n), self.m)


def direction(size: Size, seed: int) -> FloatArray:
    u = np.random.default_rng([seed, 1]).normal(size=size.d)
    return u / np.linalg.norm(u)


def spread(size: Size, seed: int) -> FloatArray:
    """Rows of expected squared norm 1, the same in all directions."""
    rng = np.random.default_rng([seed, 2])
    return rng.standard_normal((size.n * size.m, size.d)) / math.sqrt(size.d)


def convex(size: Size, seed: int) -> float:
    slope, u = 0.5, direction(size, seed)
    users = Users.from_rows(slope * u + spread(size, seed), size.groups())
    T = math.ceil(8 / size.private_error)
    optimizer = DPSGD(T, 1 / (T * size.private_error), L2Ball(1.0))
    theta = _train(Linear(), users, optimizer, size, seed)
    return float(slope * u @ theta + slope)


def nonsmooth(size: Size, seed: int) -> float:
    target = direction(size, seed)
    X = spread(size, seed)
    users = Users.from_rows(X, size.groups(), X @ target)
    mean_gradient = math.sqrt(2 / (math.pi * size.d))
    T = math.ceil(max(10, (mean_gradient / size.private_error) ** 2))
    step = 1 / math.sqrt(T * (mean_gradient**2 + T * size.private_error**2))
    theta = _train(Absolute(), users, DPSGD(T, step, L2Ball(2.0)), size, seed)
    return float(mean_gradient * np.linalg.norm(theta - target))


def strongly_convex(size: Size, seed: int) -> float:
    target = direction(size, seed)
    users = Users.from_rows(target + spread(size, seed), size.groups())
    plan = userdp.plan(
        n_users=size.n,
        items_per_user=size.m,
        n_features=size.d,
        epsilon=size.epsilon,
        delta=DELTA,
        smoothness=1.0,
        strong_convexity=1.0,
        radius=size.radius,
    )
    theta = userdp.minimize(SquaredDistance(), users, plan=plan, random_state=seed).point
    return float(0.5 * np.sum((theta - target) ** 2))


def _train(loss: Objective, users: Users, optimizer: DPSGD, size: Size, seed: int) -> FloatArray:
    mean = userdp.means.ConcentratedMean(size.radius, gate="deferred")
    solution = userdp.minimize(
        loss,
        users,
        optimizer=optimizer,
        mean=mean,
        epsilon=size.epsilon,
        delta=DELTA,
        random_state=seed,
    )
    return solution.point


FAMILIES: dict[str, tuple[Callable[[Size, int], float], Size, dict[str, float]]] = {
    "convex": (convex, Size(8_000, 2, 64, 1.0), {"m": -0.5, "n": -1, "d": 0.5, "epsilon": -1}),
    "nonsmooth": (nonsmooth, Size(8_000, 2, 16, 1.0), {"m": -0.5, "n": -1, "d": 0.5, "epsilon": -1}),
    "strongly_convex": (strongly_convex, Size(8_000, 8, 64, 1.0), {"m": -1, "n": -2, "d": 1, "epsilon": -2}),
}
# More items, so that the signal, which falls with the dimension, stays above the noise.
OVERRIDES: dict[tuple[str, str], dict[str, int]] = {("nonsmooth", "d"): {"m": 32}}
RANGES: dict[str, tuple[float, ...]] = {
    "m": (1, 2, 4, 8, 16),
    "n": (2_000, 4_000, 8_000, 16_000, 32_000),
    "d": (16, 32, 64, 128, 256),
    "epsilon": (0.25, 0.5, 1.0, 2.0, 4.0),
}


def slope_of(family: str, axis: str) -> tuple[list[float], list[float]]:
    """Fit the log-log slope over a factor 16, with a 95% interval; also the mean risk at each point."""
    run, base, _ = FAMILIES[family]
    xs, ys = [], []
    for value in RANGES[axis]:
        size = replace(base, **OVERRIDES.get((family, axis), {}), **{axis: value})  # type: ignore[arg-type]
        for seed in range(SEEDS[family]):
            xs.append(math.log(value))
            ys.append(math.log(run(size, seed)))
    fit = linregress(xs, ys)
    half = student.ppf(0.975, len(xs) - 2) * fit.stderr
    means = np.exp(np.reshape(ys, (-1, SEEDS[family])).mean(axis=1))
    return [fit.slope, fit.slope - half, fit.slope + half], means.tolist()


def main() -> None:
    """Measure every slope; a run that was interrupted goes on where it stopped."""
    partial = RESULTS / "rates.partial.json"
    done = json.loads(partial.read_text()) if partial.exists() else {}
    for family, (_, _, expected) in FAMILIES.items():
        for axis in expected:
            if f"{family}/{axis}" not in done:
                done[f"{family}/{axis}"] = slope_of(family, axis)
                write_whole(partial, json.dumps(done))
                publish(done)
    partial.unlink()


def publish(done: dict[str, Any]) -> None:
    """Write the slopes measured so far."""
    result: dict[str, dict[str, object]] = {}
    rows = []
    for family, (_, base, expected) in FAMILIES.items():
        measured = {axis: done[f"{family}/{axis}"] for axis in expected if f"{family}/{axis}" in done}
        result[family] = {axis: slope for axis, (slope, _) in measured.items()} | {"base": vars(base)}
        for axis, (slope, means) in measured.items():
            rows.append(
                f"| {family} | {axis} | {expected[axis]:+.1f} | {slope[0]:+.2f} | [{slope[1]:+.2f}, {slope[2]:+.2f}] | "
                + " ".join(f"{risk:.2g}" for risk in means)
                + " |"
            )
    table = (
        "# Measured rates\n\nLog-log slopes of the excess risk over a factor 16, all else as in the base size; "
        f"certified mean, deferred gate, delta = {DELTA:g}, at least {min(SEEDS.values())} seeds. Slopes that are not "
        "listed have not been measured yet.\n\n"
        "| problem | in | theory | measured | 95% interval | excess risk along the range |\n|---|---|---|---|---|---|\n"
    )
    ranges = (f"* {axis}: {', '.join(f'{value:g}' for value in values)}" for axis, values in RANGES.items())
    table += "\n".join(rows) + "\n\n" + "\n".join(ranges)
    write_result("rates", "make bench-rates", result, table)


if __name__ == "__main__":
    main()
