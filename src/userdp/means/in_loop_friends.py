"""Friend counts, ramp weights and the concentration index inside a compiled loop, exactly.

The same numbers as :mod:`userdp.means.friends` on lattice vectors, found the cheapest way that settles them:

1. everybody within half a radius of the centre: all are friends;
2. bounds on each count from the sorted distances to the centre, if they pin down every weight and the index;
3. all pairs, by blocks of a Gram product, or by plain differences where users are too far out for it.

Which way was taken changes the time, never the answer.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# Relative slack on distances: far above their rounding error, far below anything that matters.
_SLACK = 1e-9
_GRAM_NORM = 2.0**25


class Friends(NamedTuple):
    """Integer ramp weights clip(f_j - lo, 0, hi - lo), and the concentration index h."""

    weights: Array
    h: Array


def friends(units: Array, centre: Array, radius_units: int, lo: int, hi: int) -> Friends:
    """Weigh users on the lattice (float64 integers; null users are rows of NaN).

    ``centre`` may be any integer vector; near the users it saves time.
    """
    n = units.shape[0]
    present = ~jnp.isnan(units[:, 0])
    offsets = jnp.where(present[:, None], units - centre, 0.0)
    distances = jnp.where(present, jnp.sqrt(jnp.sum(offsets**2, axis=1)), jnp.inf)
    R = float(radius_units)

    def all_friends() -> Friends:
        return Friends(jnp.full(n, min(max(n - lo, 0), hi - lo), jnp.int64), jnp.asarray(n, jnp.int64))

    def not_all() -> Friends:
        settled, bounded = _from_bounds(distances, present, R, lo, hi)
        found: Friends = jax.lax.cond(
            settled,
            lambda: bounded,
            lambda: _from_counts(_count_pairs(offsets, distances, present, R), lo, hi),
        )
        return found

    found: Friends = jax.lax.cond(2 * jnp.max(distances) * (1 + _SLACK) <= R, all_friends, not_all)
    return found


def _from_counts(counts: Array, lo: int, hi: int) -> Friends:
    descending = -jnp.sort(-counts)
    index = jnp.sum(descending >= jnp.arange(1, counts.shape[0] + 1))
    return Friends(jnp.clip(counts - lo, 0, hi - lo), index.astype(jnp.int64))


def _from_bounds(distances: Array, present: Array, R: float, lo: int, hi: int) -> tuple[Array, Friends]:
    """Bound every count by the triangle inequality; tell whether that settles weights and index."""
    ordered = jnp.sort(distances)
    reach = R * (1 + _SLACK) + _SLACK * distances
    at_least = jnp.searchsorted(ordered, R * (1 - _SLACK) - distances * (1 + _SLACK), side="right")
    at_most = jnp.searchsorted(ordered, distances + reach, side="right") - jnp.searchsorted(
        ordered, distances - reach, side="left"
    )
    at_least = jnp.where(present, jnp.maximum(at_least, 1), 0).astype(jnp.int64)
    at_most = jnp.where(present, at_most, 0).astype(jnp.int64)
    lower, upper = _from_counts(at_least, lo, hi), _from_counts(at_most, lo, hi)
    settled = jnp.all(lower.weights == upper.weights) & (lower.h == upper.h)
    return settled, lower


def _count_pairs(offsets: Array, distances: Array, present: Array, R: float) -> Array:
    """Count friends over all pairs, block of rows by block of rows."""
    is_near = jnp.max(jnp.where(present, distances, 0.0)) <= _GRAM_NORM

    def count(squared_distances: Callable[[Array, Array], Array], size: int) -> Array:
        n, d = offsets.shape
        padding = -n % size
        blocks = jnp.pad(offsets, ((0, padding), (0, 0))).reshape(-1, size, d)
        counts = jax.lax.map(
            lambda rows: jnp.sum((squared_distances(rows, offsets) <= R * R) & present, axis=1), blocks
        )
        return jnp.where(present, counts.reshape(-1)[:n], 0).astype(jnp.int64)

    total: Array = jax.lax.cond(
        is_near, lambda: count(_squared_by_gram, 256), lambda: count(_squared_by_difference, 8)
    )
    return total


def _squared_by_gram(rows: Array, columns: Array) -> Array:
    """Squared distances, exact for integers of norm up to 2^25."""
    return jnp.sum(rows**2, axis=1)[:, None] + jnp.sum(columns**2, axis=1) - 2 * rows @ columns.T


def _squared_by_difference(rows: Array, columns: Array) -> Array:
    """Squared distances, exact below 2^53 and never mistaken for a small one above."""
    return jnp.sum((rows[:, None, :] - columns[None]) ** 2, axis=2)
