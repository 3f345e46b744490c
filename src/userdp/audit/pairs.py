"""Neighbouring tables that are hard to hide: a library of them, and a search that finds others.

A pair holds one vector per user at friend radius 1; the two tables differ in the first row.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from userdp.arrays import FloatArray


@dataclass(frozen=True)
class Pair:
    """Two tables of users' vectors (or any two neighbouring inputs), and what is special about them."""

    name: str
    one: FloatArray
    other: FloatArray

    @property
    def swapped(self) -> "Pair":
        """The same two tables in the other order."""
        return Pair(self.name, self.other, self.one)


def replaced(name: str, one: FloatArray, row: FloatArray | float) -> Pair:
    """Return a table and the same with another first row."""
    other = one.copy()
    other[0] = row
    return Pair(name, one, other)


def neighbours(n_users: int) -> tuple[FloatArray, FloatArray]:
    """Return two tables with all users at one point but one, who is at opposite ends of the unit ball.

    They attain the sensitivity 2r/n of a mean.
    """
    pair = across(n_users)
    return pair.one, pair.other


def across(n_users: int) -> Pair:
    """All users at one point but one, who is at opposite ends of the unit ball."""
    one = np.zeros((n_users, 1))
    one[0] = -1.0
    return replaced("across the ball", one, 1.0)


def library(n_users: int) -> tuple[Pair, ...]:
    """Return the pairs that the proofs and the known attacks suggest, in one dimension."""
    n, middle = n_users, np.zeros((n_users, 1))
    ramp = np.concatenate([[0.0], np.linspace(-0.75, 0.75, n - 1)])[:, None]
    camps = np.concatenate([[-0.5], np.full(n - 1 - n // 10, -0.5), np.full(n // 10, 1.0)])[:, None]
    bridge = np.concatenate([[0.0], np.full(n - 1 - n // 8, 0.0), np.full(n // 8, 1.0)])[:, None]
    nulls = middle.copy()
    nulls[0], nulls[1 : 1 + n // 10] = -1.0, np.nan
    return (
        across(n),
        replaced("to null", middle, np.nan),
        replaced("far away", middle, 1e6),
        replaced("from the edge to null", np.concatenate([[[1.0]], middle[1:]]), np.nan),
        replaced("from the edge to far away", np.concatenate([[[1.0]], middle[1:]]), -1e6),
        replaced("across, among nulls", nulls, 1.0),
        replaced("out of a ramp of friends", ramp, 1e6),
        replaced("between two camps", camps, 1.0),
        replaced("friends of a few on the rim", bridge, -1.0),
    )


def switching(
    n_users: int, rounds: int, together: int, last: int, *, here: float = 1.0, away: float = -1e6
) -> Pair:
    """Tables for a session whose gate sees one user agree in every round but the last, or in the last alone.

    ``together`` others stand in one place (``last`` of them in the last round) and everybody else far from everybody;
    the user is ``here`` where it agrees, and ``away`` where it does not. Nothing tells more about a threshold whose
    noise is drawn once: all rounds that pass speak for the one table, and the round that fails for it too.
    """
    far = 1e3 * (1.0 + np.arange(n_users))

    def table(others: int, first: float) -> FloatArray:
        x = np.where(np.arange(n_users) < n_users - others, far, 0.0)
        x[0] = first
        return x[:, None]

    one, other = (
        np.stack([table(together, first)] * (rounds - 1) + [table(last, then)])
        for first, then in ((here, away), (away, here))
    )
    if rounds == 1:
        return Pair("at the gate's threshold", one[0], other[0])
    return Pair("agrees until the last round", one, other)


def search(
    value: Callable[[Pair], float], start: Pair, rng: np.random.Generator, steps: int
) -> tuple[Pair, float]:
    """Climb, with some heat, towards neighbours of a larger value; return the best pair and its value.

    A step moves the replaced user, one other user, or a group of users who stand together.
    """
    best, highest = start, value(start)
    current, height = best, highest
    for step in range(steps):
        one, row = current.one.copy(), current.other[0].copy()
        move = rng.normal(size=row.shape) * rng.choice([0.02, 0.1, 0.5])
        who = rng.random()
        if who < 0.3:
            row = row + move
        elif who < 0.5:
            one[0] = one[0] + move
        elif who < 0.8:
            group = rng.choice(np.arange(1, len(one)), size=rng.integers(1, 1 + len(one) // 8), replace=False)
            one[group] = one[rng.integers(1, len(one))] + (move if rng.random() < 0.7 else 0.0)
        else:
            one[rng.integers(1, len(one))] += move
        candidate = replaced("found by search", one, row)
        found = value(candidate)
        heat = 0.03 * highest * (1 - step / steps) + 1e-12
        if found > height or rng.random() < np.exp((found - height) / heat):
            current, height = candidate, found
        if height > highest:
            best, highest = current, height
    return best, highest
