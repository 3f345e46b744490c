"""Means: ``userdp.mean`` with nothing given, against clipping into balls that an oracle chose.

The *best ball* is centred at the exact mean of the users; its radius R minimizes the noise's variance d (2 R/(n mu))^2
plus the square of E (||x - c|| - R)+, which bounds the bias. (Minimizing the error itself would have no meaning: a ball
of radius 0 at the exact mean has none.) The *ball around zero* has the radius of least root mean squared error. Both
errors are exact expectations; replacing one user moves a clipped mean by 2 R/n.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import userdp
from benchmarks.peers.problem import DATA, DELTA, EPSILONS, USERS, Array, Table
from benchmarks.peers.tune import gdp_mu

SEEDS = 24
_RADII = 200
Row = dict[str, Any]


def vectors_of(name: str) -> Array:
    """Users' means of every feature, or their hundred ratings (a joke not rated counts as 0, the middle)."""
    if name == "jester_wide":
        with np.load(DATA / "jester_wide.npz") as arrays:
            ratings: Array = arrays["ratings"]
            return ratings
    table = Table.load(name)
    rows = np.hstack([table.numbers, table.booleans]).astype(np.float64)
    sums: Array = np.add.reduceat(rows, table.offsets[:-1], axis=0)
    return sums / np.diff(table.offsets)[:, None]


def clipped_mean(x: Array, centre: Array, radius: float) -> Array:
    offsets = x - centre
    norms = np.linalg.norm(offsets, axis=1, keepdims=True)
    mean: Array = centre + (offsets * np.minimum(1, radius / np.maximum(norms, 1e-300))).mean(axis=0)
    return mean


def noise_error(x: Array, radius: float, mu: float) -> float:
    return float(np.sqrt(x.shape[1]) * 2 * radius / (len(x) * mu))


def best_ball(x: Array, mu: float) -> tuple[float, float]:
    """Return radius and root mean squared error of the best ball."""
    truth = x.mean(axis=0)
    distance = np.linalg.norm(x - truth, axis=1)
    radii = np.quantile(distance, np.linspace(0, 1, _RADII))
    bound = [noise_error(x, R, mu) ** 2 + np.maximum(distance - R, 0).mean() ** 2 for R in radii]
    radius = float(radii[np.argmin(bound)])
    bias = float(np.linalg.norm(clipped_mean(x, truth, radius) - truth))
    return radius, float(np.hypot(noise_error(x, radius, mu), bias))


def ball_around_zero(x: Array, mu: float) -> tuple[float, float]:
    """Return radius and root mean squared error of the best ball around zero."""
    truth, zero = x.mean(axis=0), np.zeros(x.shape[1])
    radii = np.quantile(np.linalg.norm(x, axis=1), np.linspace(0, 1, _RADII // 4))
    errors = [
        np.hypot(noise_error(x, R, mu), np.linalg.norm(clipped_mean(x, zero, R) - truth)) for R in radii
    ]
    best = int(np.argmin(errors))
    return float(radii[best]), float(errors[best])


def default_mean(x: Array, epsilon: float) -> tuple[float, int]:
    """Return the root mean squared error of ``userdp.mean``, and how many runs refused."""
    truth, errors, refused = x.mean(axis=0), [], 0
    for seed in range(SEEDS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                release = userdp.mean(
                    x, groups=np.arange(len(x)), epsilon=epsilon, delta=DELTA, random_state=seed
                )
            errors.append(float(((release.value - truth) ** 2).sum()))
        except (userdp.NotConcentratedError, userdp.TooFewUsersError):
            refused += 1
    return float(np.sqrt(np.mean(errors))) if errors else float("nan"), refused


def problems(tables: list[str]) -> Iterator[tuple[str, Array]]:
    """Every table in its own units, in units of each feature's standard deviation over users, and far from zero.

    Far: the scaled table, all features shifted alike until the mean lies 10 sqrt(d) from zero.
    """
    for name in tables:
        x = vectors_of(name)
        x = x[np.random.default_rng(0).permutation(len(x))]
        deviation = x.std(axis=0)
        scaled = x / np.where(deviation > 0, deviation, 1)
        far = scaled - scaled.mean(axis=0) + 10
        for label, vectors in ((name, x), (f"{name}, scaled", scaled), (f"{name}, far", far)):
            for n in sorted({min(users or len(x), len(x)) for users in USERS}):
                yield label, vectors[:n]


def mean_rows(label: str, x: Array, epsilon: float) -> Iterator[Row]:
    mu = gdp_mu(epsilon)
    setting = {
        "table": label,
        "task": "mean",
        "users": len(x),
        "epsilon": epsilon,
        "n_mu": round(len(x) * mu, 1),
    }
    radius, oracle = best_ball(x, mu)
    _, zero = ball_around_zero(x, mu)
    distance = float(np.linalg.norm(x.mean(axis=0)) / radius)
    found, refused = default_mean(x, epsilon)
    errors = {"userdp.mean": found, "best ball": oracle, "ball around zero": zero}
    for method, error in errors.items():
        known = np.isfinite(error)
        yield {
            **setting,
            "method": method,
            "tuned": method != "userdp.mean",
            "seeds": SEEDS if method == "userdp.mean" else 0,
            "refused": refused if method == "userdp.mean" else 0,
            "radii_from_zero": round(distance, 2),
            "rmse": error if known else None,
            "ratio_to_best_ball": round(error / oracle, 3) if known else None,
            "ratio_to_zero_ball": round(error / zero, 3) if known else None,
        }


def keys(label: str, x: Array) -> Iterator[tuple[str, str, int, float, str]]:
    for epsilon in EPSILONS:
        yield label, "mean", len(x), epsilon, "userdp.mean"
