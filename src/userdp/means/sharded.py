"""Friend counts and the exact mean of users that are spread over shards: certify, refute, and ask for the rest.

A round goes through as few of these questions as settle it, each answered by every shard about its own users:

1. with a common centre c: how many users are there, how far is the farthest, and what do the offsets u_j - c sum up
   to? If all lie within half a radius of c all are friends, and the sums are the mean: one question, no vector travels;
2. a middle of the users, and every user's distance to it (one number a user): the bounds of
   :mod:`userdp.means.in_loop_friends` settle most counts;
3. the vectors of the users that the bounds leave open go to every shard, which counts their friends among its own;
4. every shard gets its users' weights and returns their weighted sum.

All answers that enter a count or the mean are exact integers, so the result is that of
:func:`userdp.means.in_loop_friends.friends` on all users together, bit for bit, however users are spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.means.crowd import look_around, serves
from userdp.means.in_loop import Shards
from userdp.means.in_loop_friends import (
    GRAM_NORM,
    count_bounds,
    middle,
    rounding_slack,
    squared_by_difference,
    squared_by_product,
    weigh,
)
from userdp.means.lattice import Lattice
from userdp.means.lattice_sums import round_to_lattice, weighted_total
from userdp.programs import compiled

# So many open users travel to the shards at a time, and so many are compared at a time there.
_OPEN_AT_ONCE = 4096
_ROWS_AT_ONCE = 128


class ExactMean(NamedTuple):
    """A round before its noise: the mean in whole and answer units, and the concentration index h."""

    whole: Any
    fraction: Any
    index: Any


@dataclass(frozen=True)
class Ramp:
    """The public numbers of a round: the lattice, and where weights begin and end."""

    lattice: Lattice
    lo: int
    hi: int


@dataclass(frozen=True)
class Survey:
    """How many users, how far the farthest from c, and the sum of u_j - c (right if all are within a radius)."""

    lattice: Lattice

    def __call__(self, vectors: Array, centre: Array) -> tuple[Array, Array, Array]:
        """Answer for one shard."""
        if not serves(vectors):
            return self._by_xla(vectors, centre)
        found: tuple[Array, Array, Array] = jax.lax.platform_dependent(
            vectors, centre, cpu=self._by_kernel, default=self._by_xla
        )
        return found

    def _by_kernel(self, vectors: Array, centre: Array) -> tuple[Array, Array, Array]:
        number, farthest, total = look_around(vectors, centre, self.lattice)
        return number, farthest, total.astype(jnp.int64)

    def _by_xla(self, vectors: Array, centre: Array) -> tuple[Array, Array, Array]:
        distances, offsets, present = _offsets(vectors, centre, self.lattice)
        farthest = jnp.max(jnp.where(present, distances, 0.0), initial=0.0)
        near = jnp.clip(offsets, -self.lattice.radius_units, self.lattice.radius_units)
        return jnp.sum(present), farthest, jnp.sum(near.astype(jnp.int64), axis=0)


@dataclass(frozen=True)
class Middle:
    """Some point near most users of a shard."""

    lattice: Lattice

    def __call__(self, vectors: Array) -> Array:
        """Answer for one shard."""
        units = round_to_lattice(vectors, self.lattice)
        return middle(units, ~jnp.isnan(units[:, 0]))


@dataclass(frozen=True)
class Distances:
    """Every user's distance to c, infinite for a null user."""

    lattice: Lattice

    def __call__(self, vectors: Array, centre: Array) -> Array:
        """Answer for one shard."""
        return _offsets(vectors, centre, self.lattice)[0]


@dataclass(frozen=True)
class Rows:
    """Some users' offsets from c."""

    lattice: Lattice

    def __call__(self, vectors: Array, centre: Array, places: Array) -> Array:
        """Answer for one shard; a place beyond its users gives zeros."""
        chosen = vectors.at[places].get(mode="fill", fill_value=0.0)
        return _offsets(chosen, centre, self.lattice)[1]


@dataclass(frozen=True)
class FriendsAmong:
    """How many of a shard's users are friends of each given user: exact, by products or by differences."""

    lattice: Lattice
    by_product: bool

    def __call__(self, vectors: Array, centre: Array, rows: Array) -> Array:
        """Answer for one shard."""
        distances, offsets, present = _offsets(vectors, centre, self.lattice)
        R = float(self.lattice.radius_units)
        squared, size = (squared_by_product, _ROWS_AT_ONCE) if self.by_product else (squared_by_difference, 8)
        columns = present & (distances <= GRAM_NORM) if self.by_product else present

        def of_block(block: Array) -> Array:
            return jnp.sum((squared(block, offsets) <= R * R) & columns, axis=1)

        counts: Array = jax.lax.map(of_block, rows.reshape(-1, size, rows.shape[1]))
        return counts.ravel()


@dataclass(frozen=True)
class WeightedTotal:
    """sum_j w_j (u_j - origin) in int64."""

    ramp: Ramp

    def __call__(self, vectors: Array, origin: Array, weights: Array) -> Array:
        """Answer for one shard."""
        units = round_to_lattice(vectors, self.ramp.lattice)
        return weighted_total(units, weights, origin, self.ramp.lattice, self.ramp.hi - self.ramp.lo)


def mean_of_shards(shards: Shards, ramp: Ramp, hint: IntArray | None) -> tuple[ExactMean, IntArray]:
    """Weigh and average all shards' users; ``hint`` is a point near them, if one is known.

    Returns the round's exact numbers and the hint for the next round.
    """
    centre = _middle_of_shards(shards, ramp.lattice) if hint is None else hint.astype(np.float64)
    settled = _if_all_are_friends(shards, ramp, centre)
    if settled is None and hint is not None:
        centre = _middle_of_shards(shards, ramp.lattice)
        settled = _if_all_are_friends(shards, ramp, centre)
    exact = settled or _by_comparison(shards, ramp, centre)
    return exact, exact.whole


def _if_all_are_friends(shards: Shards, ramp: Ramp, centre: FloatArray) -> ExactMean | None:
    """One question settles a round whose users lie within half a radius of the centre."""
    lattice = ramp.lattice
    numbers, farthest, totals = zip(*shards.ask(Survey(lattice), centre), strict=True)
    if not 2 * max(farthest) * (1 + rounding_slack(lattice.dimension)) <= lattice.radius_units:
        return None
    number = int(np.sum(numbers))
    # With equal weights w the mean is that of weights one.
    anyone = number > ramp.lo
    whole, fraction = lattice.ratio(
        centre.astype(np.int64) if anyone else np.zeros(lattice.dimension, np.int64),
        np.sum(totals, axis=0) if anyone else np.zeros(lattice.dimension, np.int64),
        max(number, 1),
    )
    return ExactMean(whole, fraction, np.int64(number))


def _by_comparison(shards: Shards, ramp: Ramp, centre: FloatArray) -> ExactMean:
    """Count friends by distances to the centre, and by vectors where these leave a count open."""
    lattice = ramp.lattice
    parts = shards.ask(Distances(lattice), centre)
    sizes = [len(part) for part in parts]
    distances = np.concatenate(parts)
    counts = _counts(shards, lattice, centre, distances, sizes)
    with jax.enable_x64(True):
        weights, index = map(np.asarray, weigh(jnp.asarray(counts), ramp.lo, ramp.hi))
    if not weights.any():
        nothing = np.zeros(lattice.dimension, np.int64)
        return ExactMean(nothing, nothing, index)
    first = np.zeros(len(weights), bool)
    first[weights.argmax()] = True
    origin = _rows(shards, lattice, centre, first, sizes)[0] + centre
    totals = shards.ask(WeightedTotal(ramp), origin, each=_split(weights, sizes))
    whole, fraction = lattice.ratio(origin.astype(np.int64), np.sum(totals, axis=0), int(weights.sum()))
    return ExactMean(whole, fraction, index)


def _counts(
    shards: Shards, lattice: Lattice, centre: FloatArray, distances: FloatArray, sizes: Sequence[int]
) -> IntArray:
    """Compute what :func:`userdp.means.in_loop_friends.friends` counts, and in the same three ways."""
    R, present = float(lattice.radius_units), np.isfinite(distances)
    with jax.enable_x64(True):
        at_least, at_most = map(np.array, _settled_counts(distances, present, R, lattice.dimension))
    is_open = at_least < at_most
    all_near = bool((distances[present] <= GRAM_NORM).all())
    by_product = is_open & ((distances + 2 * R <= GRAM_NORM) | all_near)
    counts: IntArray = at_least
    for chosen, question in (
        (by_product, FriendsAmong(lattice, by_product=True)),
        (is_open & ~by_product, FriendsAmong(lattice, by_product=False)),
    ):
        places = np.flatnonzero(chosen)
        for part in (places[i : i + _OPEN_AT_ONCE] for i in range(0, len(places), _OPEN_AT_ONCE)):
            mask = np.zeros(len(chosen), bool)
            mask[part] = True
            rows = _padded(_rows(shards, lattice, centre, mask, sizes), _ROWS_AT_ONCE)
            counts[part] = np.sum(shards.ask(question, centre, rows), axis=0)[: len(part)]
    return counts


@compiled(2, 3)
def _settled_counts(distances: Array, present: Array, R: float, dimension: int) -> tuple[Array, Array]:
    return count_bounds(distances, present, R, rounding_slack(dimension))


def _rows(
    shards: Shards, lattice: Lattice, centre: FloatArray, chosen: BoolArray, sizes: Sequence[int]
) -> FloatArray:
    """Fetch the offsets of the chosen users, in their order; a shard is asked for a power of two of them."""
    places = [np.flatnonzero(part) for part in _split(chosen, sizes)]
    asked = [
        np.pad(part, (0, _power_of_two(len(part)) - len(part)), constant_values=size)
        for part, size in zip(places, sizes, strict=True)
    ]
    answers = shards.ask(Rows(lattice), centre, each=asked)
    return np.concatenate([rows[: len(part)] for rows, part in zip(answers, places, strict=True)])


def _middle_of_shards(shards: Shards, lattice: Lattice) -> FloatArray:
    middles: FloatArray = np.median(shards.ask(Middle(lattice)), axis=0)
    return np.rint(middles)


def _offsets(vectors: Array, centre: Array, lattice: Lattice) -> tuple[Array, Array, Array]:
    """Return the distances to the centre (infinite for null users), the offsets (zero), and who is present."""
    units = round_to_lattice(vectors, lattice)
    present = ~jnp.isnan(units[:, 0])
    offsets = jnp.where(present[:, None], units - centre, 0.0)
    return jnp.where(present, jnp.sqrt(jnp.sum(offsets**2, axis=1)), jnp.inf), offsets, present


def _split(values: Any, sizes: Sequence[int]) -> list[Any]:
    return np.split(values, np.cumsum(sizes)[:-1])


def _padded(rows: FloatArray, multiple: int) -> FloatArray:
    return np.pad(rows, ((0, multiple * _power_of_two(-(-len(rows) // multiple)) - len(rows)), (0, 0)))


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that holds ``number``, so that few shapes are compiled."""
    return 1 << max(number - 1, 0).bit_length() if number else 0
