"""Neighbouring data sets: by hand, at random, and by climbing towards the bound."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from userdp.arrays import FloatArray


@dataclass(frozen=True)
class Pair:
    """Vectors that differ in row 0, at friend radius 1."""

    name: str
    one: FloatArray
    other: FloatArray


def replace_first(name: str, one: FloatArray, row: FloatArray) -> Pair:
    other = one.copy()
    other[0] = row
    return Pair(name, one, other)


def by_hand() -> Iterator[Pair]:
    """Ties, nulls, odd and even n, one central user, ramps full of users."""
    for n in (4, 5, 8, 11, 12, 30, 60):
        for d in (1, 2, 3):
            along = np.eye(1, d)[0]
            rest = np.zeros((n, d))
            one = rest.copy()
            one[0] = -along
            yield replace_first(f"across the ball, ties at the radius, n={n}, d={d}", one, along)
            yield replace_first(f"to null, n={n}, d={d}", one, np.full(d, np.nan))
            yield replace_first(f"far away, n={n}, d={d}", one, 1e6 * along)
            # Users on a line, a ramp of friend counts.
            line = np.linspace(0, 1.5, n)[:, None] * along
            yield replace_first(f"line, n={n}, d={d}", line, 1.5 * along)
            yield replace_first(f"line to its middle, n={n}, d={d}", line, 0.75 * along)
            half = rest.copy()
            half[n // 2 :] = 1.0 * along
            yield replace_first(f"two camps a radius apart, n={n}, d={d}", half, 2.0 * along)
            nulls = one.copy()
            nulls[-(n // 5) :] = np.nan
            yield replace_first(f"some nulls, n={n}, d={d}", nulls, along)
    for n in (5, 12, 25, 40):
        angle = np.linspace(0, 2 * np.pi, n - 1, endpoint=False)
        for size in (0.5, 0.6, 0.9, 1.0):
            circle = size * np.column_stack([np.cos(angle), np.sin(angle)])
            one = np.vstack([np.zeros(2), circle])
            yield replace_first(f"one central user, n={n}, circle of {size}", one, np.array([50.0, 0.0]))


def at_random(rng: np.random.Generator, count: int) -> Iterator[Pair]:
    for i in range(count):
        n, d = int(rng.integers(4, 61)), int(rng.integers(1, 6))
        x = rng.normal(size=(n, d)) * rng.choice([0.1, 0.3, 0.5, 1.0]) / np.sqrt(d)
        if rng.random() < 0.5:
            x = np.round(x * 4) / 4  # many ties and duplicates
        x[rng.random(n) < rng.choice([0.0, 0.1, 0.3])] += rng.normal(size=d) * 2
        x[rng.random(n) < rng.choice([0.0, 0.0, 0.1])] = np.nan
        row = rng.normal(size=d) * rng.choice([0.3, 1.0, 3.0]) if rng.random() < 0.9 else np.full(d, np.nan)
        yield replace_first(f"random {i}", x, row)


def climb(
    objective: Callable[[Pair], float], start: Pair, rng: np.random.Generator, steps: int
) -> tuple[Pair, float]:
    """Annealed hill climbing over both data sets, keeping them neighbours."""
    best, value = start, objective(start)
    current, current_value = best, value
    for step in range(steps):
        one = current.one.copy()
        row = current.other[0].copy()
        size = rng.choice([0.02, 0.1, 0.5])
        if rng.random() < 0.3:
            row += rng.normal(size=row.shape) * size
        else:
            j = rng.integers(len(one))
            one[j] = (
                one[rng.integers(len(one))]
                if rng.random() < 0.2
                else one[j] + rng.normal(size=row.shape) * size
            )
        candidate = replace_first("climbed", one, row)
        candidate_value = objective(candidate)
        heat = 0.05 * (1 - step / steps)
        if candidate_value > current_value or rng.random() < np.exp(
            (candidate_value - current_value) / (heat + 1e-9)
        ):
            current, current_value = candidate, candidate_value
        if current_value > value:
            best, value = current, current_value
    return best, value
