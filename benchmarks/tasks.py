"""Problems that every system is run on: public numbers, rows of users, and the exact excess risk of an answer.

A task is a problem at one size. What is public is the same for all systems: n, m, d, epsilon, a bound G on a row's
gradient, the smoothness, the distance to the optimum, and that a user's mean gradient spreads like G/sqrt(m).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from userdp.arrays import FloatArray
from userdp.data import Users
from userdp.planning.plan import concentration_radius
from userdp.problems import L2Ball, Logistic, Loss, SquaredDistance

DELTA = 1e-6
# How many private means a system that asks for many should take.
ROUNDS = {"mean": 1, "logistic": 50}


@dataclass(frozen=True)
class Size:
    """How many users and items, which dimension, which epsilon."""

    n: int
    m: int
    d: int
    epsilon: float


@dataclass(frozen=True)
class Task:
    """A problem at one size, with its data.

    ``rounds`` is how many private means a system that asks for many should take; ``lipschitz`` bounds the norm of a
    row's gradient, ``spread`` is the length over which users' mean gradients differ, times sqrt(m).
    """

    problem: str
    size: Size
    loss: Loss
    users: Users
    rounds: int
    lipschitz: float
    smoothness: float
    spread: float
    distance: float
    domain: L2Ball
    excess_risk: Callable[[FloatArray], float]

    @cached_property
    def radius(self) -> float:
        """How far apart two users' mean gradients lie."""
        size = self.size
        return concentration_radius(size.n, size.m, size.d, self.spread)


def mean_estimation(size: Size, seed: int) -> Task:
    """Draw rows on a unit sphere around a point of norm 1, to be found by one private mean; risk |theta - mean|^2/2."""
    rng = np.random.default_rng([seed, 11])
    target = _direction(rng, size.d)
    rows = target + _on_sphere(rng, size.n * size.m, size.d)
    return Task(
        "mean",
        size,
        SquaredDistance(),
        Users.from_rows(rows, np.repeat(np.arange(size.n), size.m)),
        rounds=ROUNDS["mean"],
        lipschitz=2.0,
        smoothness=1.0,
        spread=1.0,
        distance=1.0,
        domain=L2Ball(1.0),
        excess_risk=lambda theta: float(0.5 * np.sum((theta - target) ** 2)),
    )


def logistic(size: Size, seed: int) -> Task:
    """Draw features on the unit sphere and labels of a logistic model of norm 4; theta is sought in the unit ball.

    The best point of the ball lies on its boundary, where the mean gradient does not vanish.
    """
    rng = np.random.default_rng([seed, 12])
    direction = _direction(rng, size.d)

    def draw(rows: int) -> tuple[FloatArray, FloatArray]:
        X = _on_sphere(rng, rows, size.d)
        return X, (rng.random(rows) < expit(4 * X @ direction)).astype(np.float64)

    X, y = draw(size.n * size.m)
    # Along the direction of the optimum the risk is one-dimensional; across it, symmetric.
    t = _sphere_coordinate(size.d)

    def risk(theta: FloatArray) -> float:
        along = float(theta @ direction)
        across = float(np.linalg.norm(theta - along * direction))
        z = along * t[:, 0] + across * t[:, 1]
        return float(np.mean(np.logaddexp(0, z) - expit(4 * t[:, 0]) * z))

    best = risk(direction)
    return Task(
        "logistic",
        size,
        Logistic(),
        Users.from_rows(X, np.repeat(np.arange(size.n), size.m), y),
        rounds=ROUNDS["logistic"],
        lipschitz=1.0,
        smoothness=0.25,
        spread=1.0,
        distance=1.0,
        domain=L2Ball(1.0),
        excess_risk=lambda theta: risk(np.asarray(theta)) - best,
    )


def _direction(rng: np.random.Generator, d: int) -> FloatArray:
    direction: FloatArray = _on_sphere(rng, 1, d)[0]
    return direction


def _on_sphere(rng: np.random.Generator, rows: int, d: int) -> FloatArray:
    X: FloatArray = rng.standard_normal((rows, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


def _sphere_coordinate(d: int, points: int = 100_000) -> FloatArray:
    """First two coordinates of uniform points on the sphere, both signs of each: the same for every answer."""
    rng = np.random.default_rng(5)
    g = rng.standard_normal((points // 4, 2))
    rest = rng.chisquare(d - 2, points // 4) if d > 2 else np.zeros(points // 4)
    g /= np.sqrt((g**2).sum(axis=1) + rest)[:, None]
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    return np.concatenate([g * sign for sign in signs])


PROBLEMS: dict[str, Callable[[Size, int], Task]] = {"mean": mean_estimation, "logistic": logistic}
