"""Ragged users in arrays: a few dense blocks for XLA, or row after row for a kernel that finds its users itself.

Users with about the same number of items share a block and are padded to its width. Widths grow by at most an
eighth, so padding costs at most 12.5% of the data. A user's width depends on that user's own number of items alone,
and padded items have weight zero, so a block computes each user as it would alone.

XLA compiles every block by itself, which takes seconds for users of thirty widths. Packed users have no widths: what
is compiled for them knows neither how many items a user has nor, up to an eighth, how many items there are.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import jax
import numpy as np
from numpy.typing import DTypeLike

from userdp.arrays import BoolArray, IntArray
from userdp.data.users import Users
from userdp.errors import InvalidInputError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Block:
    """Users padded to one width: user after user, ``width`` rows each, and one spare row of zeros at the end.

    ``weights`` are 1/m_j for a user's own items and 0 for padding; ``usable`` is False for null users, whose
    items are all zero here. ``positions`` are the users' places in the data, whatever block they fell into.
    ``count`` is the number of users as an array (``n_users`` also counts null users that were added), and the
    spare row (a spare user in ``usable`` and ``positions``) is never read: they keep a compiler from treating a
    block with a single user in another way than a larger one. Small users come in full groups of ``lanes``, the
    last one filled up with spare users.
    """

    features: Any
    targets: Any
    weights: Any
    usable: Any
    positions: Any
    count: Any
    n_users: int = field(metadata={"static": True})
    width: int = field(metadata={"static": True})
    lanes: int = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """Users one after the other as they are in the data: user u owns rows offsets[u] to offsets[u + 1].

    ``weights`` are 1/m_j, and 0 for null users, whose items are all zero here; ``usable``, ``positions`` and
    ``count`` are as in a :class:`Block`. Null users without items that were added come last, and so do rows of
    zeros that belong to nobody.
    """

    features: Any
    targets: Any
    weights: Any
    offsets: Any
    usable: Any
    positions: Any
    count: Any
    n_users: int = field(metadata={"static": True})


LaidOut: TypeAlias = tuple[Block | Packed, ...]


class Layout(Protocol):
    """How users are laid out: :func:`blocks` or :func:`packed`."""

    def __call__(
        self,
        users: Users,
        min_items: int = 1,
        dtype: DTypeLike = np.float32,
        *,
        first: int = 0,
        few_shapes: bool = False,
    ) -> LaidOut:
        """Lay out users."""


# Users with fewer numbers than SMALL are computed LANES at a time: a loop over single users would cost more than their
# arithmetic. Groups of 16 x 256 numbers and more are slower side by side than one by one.
LANES = 16
SMALL = 256


def widths(largest: int) -> IntArray:
    """Return the block widths 1, 2, ..., 16, 18, 20, ..., 32, 36, ... up to the first that holds ``largest``.

    There are eight between a power of two and the next.
    """
    found = [1]
    while found[-1] < largest:
        found.append(found[-1] + max(1, (1 << (found[-1].bit_length() - 1)) // 8))
    return np.array(found)


def blocks(
    users: Users,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    *,
    first: int = 0,
    few_shapes: bool = False,
) -> tuple[Block, ...]:
    """Lay out users in blocks; users without targets get targets of zero.

    Parameters
    ----------
    first : int
        The place in the whole data of the first user, where these are some of many.
    few_shapes : bool
        Add null users until a block's number of users is one of :func:`widths`: blocks of many shards then share
        a few shapes, and what is compiled for one shard serves the others.
    """
    items, usable = users.items_per_user, _usable(users, min_items)
    grid = widths(int(items.max()))
    width_of = grid[np.searchsorted(grid, items)]
    return tuple(
        _block(users, np.flatnonzero(width_of == width), int(width), usable, dtype, first, few_shapes)
        for width in np.unique(width_of)
    )


def packed(
    users: Users,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    *,
    first: int = 0,
    few_shapes: bool = False,
) -> tuple[Packed]:
    """Pack users; the arguments are those of :func:`blocks`. The number of rows is always one of :func:`widths`."""
    items, usable = users.items_per_user, _usable(users, min_items)
    n, used = users.n_users, len(users.rows)
    room = int(widths(n)[-1]) if few_shapes else n
    rows = int(widths(used)[-1])
    features = np.zeros((rows, users.n_features), dtype)
    targets, weights = np.zeros((2, rows), dtype)
    mine = np.repeat(usable, items)
    with np.errstate(all="ignore"):  # as in a block
        np.copyto(features[:used], users.rows, where=mine[:, None], casting="same_kind")
        if users.targets is not None:
            np.copyto(targets[:used], users.targets, where=mine, casting="unsafe")
        np.copyto(weights[:used], np.repeat(1 / items, items), where=mine, casting="same_kind")
    return (
        Packed(
            features=features,
            targets=targets,
            weights=weights,
            offsets=np.pad(users.offsets, (0, room - n), mode="edge"),
            usable=np.pad(usable, (0, room - n)),
            positions=np.pad(np.arange(n) + first, (0, room - n)),
            count=np.asarray(n),
            n_users=room,
        ),
    )


def _usable(users: Users, min_items: int) -> BoolArray:
    if min_items < 1:
        raise InvalidInputError(f"min_items must be at least 1, got {min_items}")
    return users.usable(min_items)


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
    lanes = LANES if width * users.n_features < SMALL else 1
    room = int(widths(n)[-1]) if few_shapes else n
    places = room + (-room % lanes if lanes > 1 else 1)
    rows = places * width if lanes > 1 else room * width + 1
    real = (slot < items[:, None]) & ok[:, None]
    here, there = np.flatnonzero(real), (users.offsets[members][:, None] + slot)[real]
    features = np.zeros((rows, users.n_features), dtype)
    targets, weights = np.zeros((2, rows), dtype)
    # A value too large for the type becomes an infinity, and its user null: no warning may tell.
    with np.errstate(all="ignore"):
        features[here] = users.rows[there]
        if users.targets is not None:
            targets[here] = users.targets[there]
    weights[: n * width] = (real / items[:, None]).ravel()
    spare = places - n
    return Block(
        features=features,
        targets=targets,
        weights=weights,
        usable=np.pad(ok, (0, spare)),
        positions=np.pad(members + first, (0, spare)),
        count=np.asarray(n),
        n_users=room,
        width=width,
        lanes=lanes,
    )
