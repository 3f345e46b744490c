"""Friend counts, ramp weights and the concentration index inside a compiled loop, exactly.

The same numbers as :mod:`userdp.means.friends` on lattice vectors, found the cheapest way that settles them:

1. everybody within half a radius of the centre: all are friends;
2. bounds on each count from the sorted distances to the centre, and exact counts of the few users that the
   bounds leave open;
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
        return _from_counts(_counts(offsets, distances, present, R), lo, hi)

    found: Friends = jax.lax.cond(2 * jnp.max(distances) * (1 + _SLACK) <= R, all_friends, not_all)
    return found


def _from_counts(counts: Array, lo: int, hi: int) -> Friends:
    descending = -jnp.sort(-counts)
    index = jnp.sum(descending >= jnp.arange(1, counts.shape[0] + 1))
    return Friends(jnp.clip(counts - lo, 0, hi - lo), index.astype(jnp.int64))


def _counts(offsets: Array, distances: Array, present: Array, R: float) -> Array:
    """Count every user's friends, comparing only the pairs that the triangle inequality leaves open."""
    n = offsets.shape[0]
    at_least, at_most = _bounds(distances, present, R)
    is_open = at_least < at_most
    some = max(1, n // 8)
    is_near = jnp.max(jnp.where(present, distances, 0.0)) <= _GRAM_NORM

    def of_open_users() -> Array:
        chosen = jnp.nonzero(is_open, size=some, fill_value=0)[0]
        exact = _compare(offsets[chosen], offsets, present, R, _squared_by_gram, 256)
        return at_least.at[chosen].set(jnp.where(present[chosen], exact, 0))

    def of_all() -> Array:
        exact = jax.lax.cond(
            is_near,
            lambda: _compare(offsets, offsets, present, R, _squared_by_gram, 256),
            lambda: _compare(offsets, offsets, present, R, _squared_by_difference, 8),
        )
        return jnp.where(present, exact, 0)

    counts: Array = jax.lax.cond(is_near & (jnp.sum(is_open) <= some), of_open_users, of_all)
    return counts


def _bounds(distances: Array, present: Array, R: float) -> tuple[Array, Array]:
    """Bound every count by the triangle inequality: e_i + e_j <= R are friends, |e_i - e_j| > R are not."""
    ordered = jnp.sort(distances)
    reach = R * (1 + _SLACK) + _SLACK * distances
    at_least = jnp.searchsorted(ordered, R * (1 - _SLACK) - distances * (1 + _SLACK), side="right")
    at_most = jnp.searchsorted(ordered, distances + reach, side="right") - jnp.searchsorted(
        ordered, distances - reach, side="left"
    )
    itself = present.astype(jnp.int64)
    return jnp.maximum(jnp.where(present, at_least, 0), itself), jnp.where(present, at_most, 0)


def _compare(
    rows: Array,
    columns: Array,
    present: Array,
    R: float,
    squared_distances: Callable[[Array, Array], Array],
    size: int,
) -> Array:
    """Count each row's friends among the present columns, block of rows by block of rows."""
    k, d = rows.shape
    blocks = jnp.pad(rows, ((0, -k % size), (0, 0))).reshape(-1, size, d)
    found: Array = jax.lax.map(
        lambda block: jnp.sum((squared_distances(block, columns) <= R * R) & present, axis=1), blocks
    )
    return found.reshape(-1)[:k].astype(jnp.int64)


def _squared_by_gram(rows: Array, columns: Array) -> Array:
    """Squared distances, exact for integers of norm up to 2^25."""
    return jnp.sum(rows**2, axis=1)[:, None] + jnp.sum(columns**2, axis=1) - 2 * rows @ columns.T


def _squared_by_difference(rows: Array, columns: Array) -> Array:
    """Squared distances, exact below 2^53 and never mistaken for a small one above."""
    return jnp.sum((rows[:, None, :] - columns[None]) ** 2, axis=2)
