"""Friend counts, ramp weights and the concentration index inside a compiled loop, exactly.

The same numbers as :mod:`userdp.means.friends` on lattice vectors, found the cheapest way that settles them:

1. everybody within half a radius of the users' average: all are friends, and the sum behind that average is the mean's
   (:func:`survey`);
2. bounds on each count from the sorted distances to the middle of the users; exact counts of those users alone
   that the bounds leave open;
3. these exact counts by a Gram product, or by plain differences for users too far out for it.

Which way was taken changes the time, never the answer.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

# Integers up to this norm have exact Gram products: (|x| + |y|)^2 <= 2^52.
GRAM_NORM = 2.0**25
# The middle of this many users will do.
_SAMPLE = 128


class Friends(NamedTuple):
    """Integer ramp weights clip(f_j - lo, 0, hi - lo), and the concentration index h."""

    weights: Array
    h: Array


class Survey(NamedTuple):
    """How many users there are, whether all are seen to be friends, and then the sum of their u_j - origin."""

    number: Array
    all_friends: Array
    origin: Array
    total: Array


def survey(units: Array, radius_units: int) -> Survey:
    """Look at users on the lattice (float64 integers; null users are rows of NaN) as one crowd, in two passes.

    The origin is one of the users. Offsets are cut at two radii, so their sum is exact in any order (a lattice has
    n R < 2^45). If all cut offsets lie within half a radius of their average, which is a radius or less from the origin
    then, none was cut.
    """
    R, present = float(radius_units), ~jnp.isnan(units[:, 0])
    number = jnp.sum(present)
    origin = jnp.nan_to_num(units[jnp.argmax(present)])
    offsets = jnp.where(present[:, None], jnp.clip(units - origin, -2 * R, 2 * R), 0.0)
    # Computed once, and not again for each of the two passes.
    offsets = jax.lax.optimization_barrier(offsets)  # type: ignore[no-untyped-call]
    total = jnp.sum(offsets, axis=0)
    average = jnp.rint(total / jnp.maximum(number, 1))
    # A null user is at the origin here, where somebody is.
    farthest = jnp.sqrt(jnp.max(jnp.sum((offsets - average) ** 2, axis=1)))
    all_friends = 2 * farthest * (1 + rounding_slack(units.shape[1])) <= R
    return Survey(number, all_friends, origin, total)


def friends(units: Array, radius_units: int, lo: int, hi: int) -> Friends:
    """Weigh users on the lattice."""
    R, slack = float(radius_units), rounding_slack(units.shape[1])
    present = ~jnp.isnan(units[:, 0])
    offsets = jnp.where(present[:, None], units - middle(units, present), 0.0)
    distances = jnp.where(present, jnp.sqrt(jnp.sum(offsets**2, axis=1)), jnp.inf)
    return weigh(_counts_anywhere(offsets, distances, present, R, slack), lo, hi)


def rounding_slack(dimension: int) -> float:
    """Bound the relative rounding error of distances, as :mod:`userdp.means.friends` does."""
    return 8 * (dimension + 8) * 2.0**-52


def middle(units: Array, present: Array) -> Array:
    """Return the medians of a sample's coordinates: near most users even where some are far out."""
    sample = slice(None, None, max(1, units.shape[0] // _SAMPLE))
    ordered = jnp.sort(jnp.where(present[sample, None], units[sample], jnp.inf), axis=0)
    median = jnp.take(ordered, jnp.sum(present[sample]) // 2, axis=0, mode="clip")
    return jnp.where(jnp.isfinite(median), median, 0.0)


def weigh(counts: Array, lo: int, hi: int) -> Friends:
    """Return the ramp weights and the concentration index of friend counts."""
    descending = -jnp.sort(-counts)
    index = jnp.sum(descending >= jnp.arange(1, counts.shape[0] + 1))
    return Friends(jnp.clip(counts - lo, 0, hi - lo), index.astype(jnp.int64))


def _counts_anywhere(offsets: Array, distances: Array, present: Array, R: float, slack: float) -> Array:
    """Count on a CPU, or on a GPU where there is one: the same integers."""

    def on_cpu(offsets: Array, distances: Array, present: Array) -> Array:
        return _counts(offsets, distances, present, R, slack)

    if jax.default_backend() != "gpu":
        return on_cpu(offsets, distances, present)
    from userdp.means.gpu_friends import LONGEST_ROW, counts_on_gpu

    if offsets.shape[1] > LONGEST_ROW:
        return on_cpu(offsets, distances, present)

    def on_gpu(offsets: Array, distances: Array, present: Array) -> Array:
        return counts_on_gpu(offsets, present, R)

    counts: Array = jax.lax.platform_dependent(offsets, distances, present, cpu=on_cpu, cuda=on_gpu)
    return counts


def _counts(offsets: Array, distances: Array, present: Array, R: float, slack: float) -> Array:
    """Count every user's friends, comparing only the pairs that the triangle inequality leaves open."""
    at_least, at_most = count_bounds(distances, present, R, slack)
    is_open = at_least < at_most
    # A product is exact among near users, and enough for those who cannot have a friend farther out.
    is_near = present & (distances <= GRAM_NORM)
    by_product = is_open & ((distances + 2 * R <= GRAM_NORM) | jnp.all(is_near == present))
    counts = _compare(at_least, by_product, offsets, is_near, R, squared_by_product, 128)
    by_difference = is_open & ~by_product
    return _compare(counts, by_difference, offsets, present, R, squared_by_difference, 8)


def _compare(
    counts: Array,
    chosen: Array,
    offsets: Array,
    columns: Array,
    R: float,
    squared_distances: Callable[[Array, Array], Array],
    size: int,
) -> Array:
    """Replace the counts of the chosen users by exact ones among ``columns``, ``size`` users at a time."""
    n = counts.shape[0]
    places = jnp.nonzero(chosen, size=n + -n % size, fill_value=n)[0]

    def of_block(i: Array, counts: Array) -> Array:
        block = jax.lax.dynamic_slice_in_dim(places, i * size, size)
        rows = offsets.at[block].get(mode="fill", fill_value=0.0)
        close = (squared_distances(rows, offsets) <= R * R) & columns
        return counts.at[block].set(jnp.sum(close, axis=1), mode="drop")

    blocks = (jnp.sum(chosen) + size - 1) // size
    exact: Array = jax.lax.fori_loop(0, blocks, of_block, counts)
    return exact


def count_bounds(distances: Array, present: Array, R: float, slack: float) -> tuple[Array, Array]:
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


def squared_by_product(rows: Array, columns: Array) -> Array:
    """Squared distances, exact for integers of norm up to 2^25."""
    return jnp.sum(rows**2, axis=1)[:, None] + jnp.sum(columns**2, axis=1) - 2 * rows @ columns.T


def squared_by_difference(rows: Array, columns: Array) -> Array:
    """Squared distances, exact below 2^53 and never mistaken for a small one above."""
    return jnp.sum((rows[:, None, :] - columns[None]) ** 2, axis=2)
