"""Ragged users in arrays.

* **Packed**, row after row, for kernels that find a user's rows by themselves.
* **Side by side**, for small users: sixteen at a time, one item of each after the other.
* In dense **blocks** for a GPU. Users with about the same number of items share a block and are padded to its width.

What is compiled for packed users and for those side by side knows neither how many items anybody has nor, up to an
eighth, how many there are in all: other data of the same size compile nothing again. A block is compiled for its width.

Which of these a user is in depends on that user's own number of items alone, and what pads it has weight zero and adds
exact zeros, so a user is computed as it would be alone.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from userdp.arrays import BoolArray, IntArray
from userdp.data.users import Users
from userdp.errors import InvalidInputError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """Users one after the other as they are in the data: user u owns rows offsets[u] to offsets[u + 1].

    ``weights`` are 1/m_j, and 0 for null users, whose items are all zero here; ``usable`` is False for them.
    ``positions`` are the users' places in the data. ``count`` is the number of users as an array (``n_users`` also
    counts null users without items that were added, last): it keeps a compiler from treating a single user in another
    way than several. At the end are :func:`rows_at_once`, at least ``LANES``, rows of zeros that belong to nobody.
    """

    features: Any
    targets: Any
    weights: Any
    offsets: Any
    usable: Any
    positions: Any
    count: Any
    n_users: int = field(metadata={"static": True})

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return int(self.features.shape[1])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SideBySide:
    """Small users in groups of ``LANES``: a slab holds one item of each, their numbers next to each other.

    ``features`` have the shape (slabs, d, LANES), ``targets`` and ``weights`` (slabs, LANES). Group g owns slabs
    starts[g] to starts[g + 1], as many as its largest user has items; users are in the order of their numbers of
    items, so that the others have hardly fewer. Otherwise as :class:`Packed`; the last group is filled up with users
    that do not count.
    """

    features: Any
    targets: Any
    weights: Any
    starts: Any
    usable: Any
    positions: Any
    count: Any
    n_users: int = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Block:
    """Users padded to one width: user after user, ``width`` rows each, and one spare row of zeros at the end.

    As :class:`Packed`, with a spare user at the end of ``usable`` and ``positions``. Widths grow by at most an
    eighth, so padding costs at most 12.5% of the data.
    """

    features: Any
    targets: Any
    weights: Any
    usable: Any
    positions: Any
    count: Any
    n_users: int = field(metadata={"static": True})
    width: int = field(metadata={"static": True})


LaidOut: TypeAlias = tuple[Packed | SideBySide | Block, ...]


class Layout(Protocol):
    """How users are laid out."""

    def __call__(
        self,
        users: Users,
        min_items: int = 1,
        dtype: DTypeLike = np.float32,
        *,
        first: int = 0,
        few_shapes: bool = False,
    ) -> LaidOut:
        """Lay out users; without targets they get targets of zero.

        Parameters
        ----------
        first : int
            The place in the whole data of the first user, where these are some of many.
        few_shapes : bool
            Add null users until their number is one of :func:`widths`: many shards then share a few shapes, and what
            is compiled for one shard serves the others.
        """


# Users with fewer numbers than SMALL are computed LANES at a time: a loop over single users would cost more than their
# arithmetic. Groups of 16 x 256 numbers and more are slower side by side than one by one.
LANES = 16
SMALL = 256
# A kernel takes at most so many numbers of a user at once: XLA leaves arrays of this size to one thread.
_AT_ONCE, _MOST_AT_ONCE = 2**13, 1024
_ALIGNMENT = 64


def widths(largest: int) -> IntArray:
    """Return the widths 1, 2, ..., 16, 18, 20, ..., 32, 36, ... up to the first that holds ``largest``.

    There are eight between a power of two and the next.
    """
    found = [1]
    while found[-1] < largest:
        found.append(found[-1] + max(1, (1 << (found[-1].bit_length() - 1)) // 8))
    return np.array(found)


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return zeros that JAX uses where they are.

    It would copy what does not begin at a multiple of 64 bytes, into pages of 4 KiB; NumPy asks for pages of 2 MiB,
    from which rows are read faster.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + _ALIGNMENT, np.uint8)
    first = -room.ctypes.data % _ALIGNMENT
    return room[first : first + size].view(dtype).reshape(shape)


def rows_at_once(numbers: int) -> int:
    """How many rows of so many numbers a kernel takes at once: a power of two."""
    return 1 << (max(1, min(_MOST_AT_ONCE, _AT_ONCE // numbers)).bit_length() - 1)


def packed(
    users: Users,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    *,
    first: int = 0,
    few_shapes: bool = False,
) -> tuple[Packed, ...]:
    """Pack all users."""
    positions = np.arange(users.n_users) + first
    return (_packed(users, _usable(users, min_items), positions, dtype, few_shapes),)


def small_side_by_side(
    users: Users,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    *,
    first: int = 0,
    few_shapes: bool = False,
) -> tuple[Packed | SideBySide, ...]:
    """Lay out small users side by side, and pack the others."""
    usable = _usable(users, min_items)
    is_small = users.items_per_user * users.n_features < SMALL
    parts: list[Packed | SideBySide] = []
    for lay_out, members in ((_side_by_side, np.flatnonzero(is_small)), (_packed, np.flatnonzero(~is_small))):
        if len(members):
            some = users if len(members) == users.n_users else users.take(members)
            parts.append(lay_out(some, usable[members], members + first, dtype, few_shapes))
    return tuple(parts)


def _packed(
    users: Users, usable: BoolArray, positions: IntArray, dtype: DTypeLike, few_shapes: bool
) -> Packed:
    n, used, items = users.n_users, len(users.rows), users.items_per_user
    spare = int(widths(n)[-1]) - n if few_shapes else 0
    rows = int(widths(used + max(LANES, rows_at_once(users.n_features)))[-1])
    features = zeros((rows, users.n_features), dtype)
    targets, weights = np.zeros((2, rows), dtype)
    mine = np.repeat(usable, items)
    # A value too large for the type becomes an infinity, and its user null: no warning may tell.
    with np.errstate(all="ignore"):
        np.copyto(features[:used], users.rows, where=mine[:, None], casting="same_kind")
        if users.targets is not None:
            np.copyto(targets[:used], users.targets, where=mine, casting="same_kind")
    np.copyto(weights[:used], np.repeat(1 / items, items), where=mine, casting="same_kind")
    return Packed(
        features=features,
        targets=targets,
        weights=weights,
        offsets=np.pad(users.offsets, (0, spare), mode="edge"),
        usable=np.pad(usable, (0, spare)),
        positions=np.pad(positions, (0, spare)),
        count=np.asarray(n),
        n_users=n + spare,
    )


def _side_by_side(
    users: Users, usable: BoolArray, positions: IntArray, dtype: DTypeLike, few_shapes: bool
) -> SideBySide:
    n, items = users.n_users, users.items_per_user
    room = int(widths(n)[-1]) if few_shapes else n
    places = room + -room % LANES
    order = np.argsort(-items, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    lengths = items[order[::LANES]]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    slabs = int(widths(int(starts[-1]))[-1])
    features = zeros((slabs, users.n_features, LANES), dtype)
    targets, weights = np.zeros((2, slabs, LANES), dtype)
    mine = np.repeat(usable, items)
    owner = np.repeat(place, items)[mine]
    item = (np.arange(len(users.rows)) - np.repeat(users.offsets[:-1], items))[mine]
    slab, lane = starts[owner // LANES] + item, owner % LANES
    with np.errstate(all="ignore"):  # as above
        features[slab, :, lane] = users.rows[mine]
        if users.targets is not None:
            targets[slab, lane] = users.targets[mine]
    weights[slab, lane] = np.repeat(1 / items, items)[mine]
    return SideBySide(
        features=features,
        targets=targets,
        weights=weights,
        starts=np.pad(starts, (0, places // LANES - len(lengths)), mode="edge"),
        usable=np.pad(usable[order], (0, places - n)),
        positions=np.pad(positions[order], (0, places - n)),
        count=np.asarray(n),
        n_users=room,
    )


def blocks(
    users: Users,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    *,
    first: int = 0,
    few_shapes: bool = False,
) -> tuple[Block, ...]:
    """Lay out users in blocks."""
    items, usable = users.items_per_user, _usable(users, min_items)
    grid = widths(int(items.max()))
    width_of = grid[np.searchsorted(grid, items)]
    return tuple(
        _block(users, np.flatnonzero(width_of == width), int(width), usable, dtype, first, few_shapes)
        for width in np.unique(width_of)
    )


def _block(
    users: Users,
    members: IntArray,
    width: int,
    usable: BoolArray,
    dtype: DTypeLike,
    first: int,
    few_shapes: bool,
) -> Block:
    items, ok = users.items_per_user[members], usable[members]
    n, slot = len(members), np.arange(width)
    room = int(widths(n)[-1]) if few_shapes else n
    rows, spare = room * width + 1, room + 1 - n
    real = (slot < items[:, None]) & ok[:, None]
    here, there = np.flatnonzero(real), (users.offsets[members][:, None] + slot)[real]
    features = zeros((rows, users.n_features), dtype)
    targets, weights = np.zeros((2, rows), dtype)
    with np.errstate(all="ignore"):  # as above
        features[here] = users.rows[there]
        if users.targets is not None:
            targets[here] = users.targets[there]
    weights[: n * width] = (real / items[:, None]).ravel()
    return Block(
        features=features,
        targets=targets,
        weights=weights,
        usable=np.pad(ok, (0, spare)),
        positions=np.pad(members + first, (0, spare)),
        count=np.asarray(n),
        n_users=room,
        width=width,
    )


def _usable(users: Users, min_items: int) -> BoolArray:
    if min_items < 1:
        raise InvalidInputError(f"min_items must be at least 1, got {min_items}")
    return users.usable(min_items)
