"""Friend counts, ramp weights and the concentration index inside a compiled loop, exactly.

The same numbers as :mod:`userdp.means.friends` on lattice vectors, found the cheapest way that settles them:

1. everybody within half a radius of the users' average: all are friends;
2. bounds on each count from the sorted distances to the middle of the users, and exact counts of the few users
   that the bounds leave open;
3. all pairs, by blocks of a Gram product, or by plain differences where users are too far out for it.

Which way was taken changes the time, never the answer.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# Integers up to this norm have exact Gram products: (|x| + |y|)^2 <= 2^52.
_GRAM_NORM = 2.0**25
# The middle of this many users will do.
_SAMPLE = 128


class Friends(NamedTuple):
    """Integer ramp weights clip(f_j - lo, 0, hi - lo), and the concentration index h."""

    weights: Array
    h: Array


def friends(units: Array, radius_units: int, lo: int, hi: int) -> Friends:
    """Weigh users on the lattice (float64 integers; null users are rows of NaN)."""
    n, d = units.shape
    R, slack = float(radius_units), _slack(d)
    present = ~jnp.isnan(units[:, 0])
    found = jnp.where(present[:, None], units, 0.0)
    # Any centre is right; one near the users saves time. The average costs one pass, but one user can move it.
    average = jnp.rint(jnp.sum(found, axis=0) / jnp.maximum(jnp.sum(present), 1))
    farthest = jnp.sqrt(jnp.max(jnp.sum((found - average) ** 2, axis=1)))

    def all_friends() -> Friends:
        return Friends(jnp.full(n, min(max(n - lo, 0), hi - lo), jnp.int64), jnp.asarray(n, jnp.int64))

    def not_all() -> Friends:
        offsets = jnp.where(present[:, None], units - _middle(units, present), 0.0)
        distances = jnp.where(present, jnp.sqrt(jnp.sum(offsets**2, axis=1)), jnp.inf)
        return _from_counts(_counts(offsets, distances, present, R, slack), lo, hi)

    settled = jnp.all(present) & (2 * farthest * (1 + slack) <= R)
    weighed: Friends = jax.lax.cond(settled, all_friends, not_all)
    return weighed


def _slack(dimension: int) -> float:
    """Bound the relative rounding error of distances, as :mod:`userdp.means.friends` does."""
    return 8 * (dimension + 8) * 2.0**-52


def _middle(units: Array, present: Array) -> Array:
    """Return the medians of a sample's coordinates: near most users even where some are far out."""
    sample = slice(None, None, max(1, units.shape[0] // _SAMPLE))
    ordered = jnp.sort(jnp.where(present[sample, None], units[sample], jnp.inf), axis=0)
    median = jnp.take(ordered, jnp.sum(present[sample]) // 2, axis=0, mode="clip")
    return jnp.where(jnp.isfinite(median), median, 0.0)


def _from_counts(counts: Array, lo: int, hi: int) -> Friends:
    descending = -jnp.sort(-counts)
    index = jnp.sum(descending >= jnp.arange(1, counts.shape[0] + 1))
    return Friends(jnp.clip(counts - lo, 0, hi - lo), index.astype(jnp.int64))


def _counts(offsets: Array, distances: Array, present: Array, R: float, slack: float) -> Array:
    """Count every user's friends, comparing only the pairs that the triangle inequality leaves open."""
    n = offsets.shape[0]
    at_least, at_most = _bounds(distances, present, R, slack)
    is_open = at_least < at_most
    # A product is exact among near users, and enough for those who cannot have a friend farther out.
    is_near = present & (distances <= _GRAM_NORM)
    by_product = is_open & ((distances + 2 * R <= _GRAM_NORM) | jnp.all(is_near == present))
    counts = _settle(
        at_least, by_product, max(1, n // 8), _Pairs(offsets, is_near, R, _squared_by_product, 256)
    )
    by_difference = is_open & ~by_product
    return _settle(counts, by_difference, min(64, n), _Pairs(offsets, present, R, _squared_by_difference, 8))


class _Pairs(NamedTuple):
    """Comparisons of users with the users of ``columns``, ``size`` rows at a time."""

    offsets: Array
    columns: Array
    R: float
    squared_distances: Callable[[Array, Array], Array]
    size: int

    def friends_of(self, rows: Array) -> Array:
        """Count each row's friends, block of rows by block of rows."""
        k, d = rows.shape
        blocks = jnp.pad(rows, ((0, -k % self.size), (0, 0))).reshape(-1, self.size, d)

        def of_block(block: Array) -> Array:
            close = self.squared_distances(block, self.offsets) <= self.R**2
            return jnp.sum(close & self.columns, axis=1)

        counts: Array = jax.lax.map(of_block, blocks)
        return counts.reshape(-1)[:k].astype(jnp.int64)


def _settle(counts: Array, chosen: Array, few: int, pairs: _Pairs) -> Array:
    """Replace the counts of the chosen users by exact ones: of these alone while they are few."""

    def of_few() -> Array:
        places = jnp.nonzero(chosen, size=few, fill_value=len(counts))[0]
        rows = pairs.offsets.at[places].get(mode="fill", fill_value=0.0)
        return counts.at[places].set(pairs.friends_of(rows), mode="drop")

    def of_all() -> Array:
        return jnp.where(chosen, pairs.friends_of(pairs.offsets), counts)

    number = jnp.sum(chosen)
    branch = jnp.where(number == 0, 0, jnp.where(number <= few, 1, 2))
    settled: Array = jax.lax.switch(branch, (lambda: counts, of_few, of_all))
    return settled


def _bounds(distances: Array, present: Array, R: float, slack: float) -> tuple[Array, Array]:
    """Bound every count by the triangle inequality: e_i + e_j <= R are friends, |e_i - e_j| > R are not."""
    # Non-negative floats are ordered like their bits, and integers sort faster.
    bits = jax.lax.bitcast_convert_type(distances, jnp.int64)
    ordered = jax.lax.bitcast_convert_type(jnp.sort(bits), jnp.float64)
    reach = R * (1 + slack) + slack * distances
    at_least = jnp.searchsorted(ordered, R * (1 - slack) - distances * (1 + slack), side="right")
    at_most = jnp.searchsorted(ordered, distances + reach, side="right") - jnp.searchsorted(
        ordered, distances - reach, side="left"
    )
    itself = present.astype(jnp.int64)
    return jnp.maximum(jnp.where(present, at_least, 0), itself), jnp.where(present, at_most, 0)


def _squared_by_product(rows: Array, columns: Array) -> Array:
    """Squared distances, exact for integers of norm up to 2^25."""
    return jnp.sum(rows**2, axis=1)[:, None] + jnp.sum(columns**2, axis=1) - 2 * rows @ columns.T


def _squared_by_difference(rows: Array, columns: Array) -> Array:
    """Squared distances, exact below 2^53 and never mistaken for a small one above."""
    return jnp.sum((rows[:, None, :] - columns[None]) ** 2, axis=2)
