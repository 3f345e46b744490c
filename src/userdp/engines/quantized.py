"""Rows as bytes: every feature is one of 255 multiples of a unit, one for each user and column.

A user's unit of a column is a 127th of the largest number that the user has there. So nobody has to know a range, a
rounded row is a function of its own user's rows, and the guarantee is that for the rounded ones
(``docs/proofs/dp_sgd.md``).
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from userdp.arrays import FloatArray, IntArray
from userdp.data.users import Users
from userdp.engines.layout import LANES, Packed, widths, zeros

_LARGEST = 127
# The byte that stands for zero.
_ZERO = 128
# Rows are stored four at a time.
_FOUR = 4
# About so many numbers are rounded at a time.
_AT_ONCE = 2**22


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quantized:
    """Users as :class:`~userdp.engines.layout.Packed` has them, features as bytes in units of their own.

    ``units`` have the shape (n_users, d), d rounded up to a multiple of ``LANES``. A line of ``features`` holds four
    rows, as :mod:`userdp.kernels.octets` has them, and a user begins with a line of their own: offsets are multiples
    of four, and ``items`` tells how many of the rows from there on are the user's. Infinite units make a user null, and
    null users have them.
    """

    features: Any
    units: Any
    targets: Any
    items: Any
    offsets: Any
    usable: Any
    positions: Any
    count: Any
    n_users: int = field(metadata={"static": True})
    n_features: int = field(metadata={"static": True})


def quantized(users: Packed) -> Quantized:
    """Round packed users' features to bytes."""
    d, items = users.features.shape[1], np.diff(users.offsets)
    columns = d + -d % LANES
    offsets = np.concatenate([[0], np.cumsum(items + -items % _FOUR)])
    rows = int(widths(int(offsets[-1]) + LANES)[-1])
    rows += -rows % _FOUR
    features = zeros((rows // _FOUR, _FOUR * columns), np.uint8)
    units = zeros((users.n_users, columns), np.float32)
    targets = np.zeros(rows, np.float32)
    for first, last in _parts(users.offsets, d):
        place = _places(users.offsets, offsets, first, last)
        here, there = slice(*users.offsets[[first, last]]), offsets[[first, last]]
        units[first:last, :d] = units_of(users.features[here], items[first:last])
        bytes_ = np.full((there[1] - there[0], columns), _ZERO, np.uint8)
        steps = in_units(users.features[here], np.repeat(units[first:last, :d], items[first:last], axis=0))
        bytes_[place - there[0], :d] = steps + _ZERO
        lines = bytes_.reshape(-1, _FOUR, columns // LANES, 4, 4).transpose(0, 2, 3, 1, 4)
        features[there[0] // _FOUR : there[1] // _FOUR] = lines.reshape(len(lines), -1)
        targets[place] = users.targets[here]
    units[~users.usable[: users.n_users]] = np.inf
    return Quantized(
        features=features,
        units=units,
        targets=targets,
        items=items,
        offsets=offsets,
        usable=users.usable,
        positions=users.positions,
        count=users.count,
        n_users=users.n_users,
        n_features=d,
    )


def rounded(users: Users) -> Users:
    """Return users with the features that :func:`quantized` would store, as they are."""
    items = users.items_per_user
    rows: NDArray[Any] = np.empty(users.rows.shape, np.float32)
    for first, last in _parts(users.offsets, users.n_features):
        here, owned = slice(*users.offsets[[first, last]]), items[first:last]
        with np.errstate(all="ignore"):  # no warning may tell
            some = users.rows[here].astype(np.float32)
            units = np.repeat(units_of(some, owned), owned, axis=0)
            rows[here] = in_units(some, units) * units
    return replace(users, rows=rows)


def units_of(rows: NDArray[Any], items: IntArray) -> FloatArray:
    """Return each user's unit of each column; not finite where a number is not."""
    units: FloatArray = np.zeros((len(items), rows.shape[1]), np.float32)
    if len(rows):
        starts = (np.cumsum(items) - items)[items > 0]
        units[items > 0] = np.maximum.reduceat(np.abs(rows), starts, axis=0) / np.float32(_LARGEST)
    return units


def in_units(rows: NDArray[Any], units: NDArray[Any]) -> NDArray[Any]:
    """Return the nearest whole multiples of the units, from -127 to 127; 0 where there is none."""
    with np.errstate(all="ignore"):  # no warning may tell
        steps = np.rint(rows / units)
    nearest: NDArray[Any] = np.clip(np.nan_to_num(steps, nan=0.0), -_LARGEST, _LARGEST)
    return nearest


def _parts(offsets: IntArray, d: int) -> list[tuple[int, int]]:
    """Cut the users into parts of about so many numbers."""
    goals = np.arange(0, int(offsets[-1]) * d, _AT_ONCE) // d
    cuts = np.unique(np.append(np.searchsorted(offsets, goals), len(offsets) - 1))
    return [(int(first), int(last)) for first, last in pairwise(cuts)]


def _places(packed: IntArray, offsets: IntArray, first: int, last: int) -> IntArray:
    """Return where the rows of some users go."""
    items = np.diff(packed[first : last + 1])
    shift = offsets[first:last] - packed[first:last]
    places: IntArray = np.arange(packed[first], packed[last]) + np.repeat(shift, items)
    return places
