"""Ragged users as a few dense blocks.

Users with about the same number of items share a block and are padded to its width. Widths grow by at most a
quarter, so padding costs at most 25% of the data. A user's width depends on that user's own number of items alone,
and padded items have weight zero, so a block computes each user as it would alone.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from userdp.arrays import IntArray
from userdp.data.users import Users
from userdp.errors import InvalidInputError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Block:
    """Users padded to one width m: arrays with leading axes (users, m).

    ``weights`` are 1/m_j for a user's own items and 0 for padding; ``usable`` is False for null users, whose
    items are all zero here.
    """

    features: Any
    targets: Any
    weights: Any
    usable: Any


def widths(largest: int) -> IntArray:
    """Return the block widths 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, ... up to the first that holds ``largest``."""
    found = [1]
    while found[-1] < largest:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return np.array(found)


def blocks(users: Users, min_items: int = 1, dtype: DTypeLike = np.float32) -> tuple[Block, ...]:
    """Lay out users in blocks; users without targets get targets of zero."""
    if min_items < 1:
        raise InvalidInputError(f"min_items must be at least 1, got {min_items}")
    items, usable = users.items_per_user, users.usable(min_items)
    grid = widths(int(items.max()))
    width_of = grid[np.searchsorted(grid, items)]
    return tuple(
        _block(users, np.flatnonzero(width_of == width), int(width), usable, dtype)
        for width in np.unique(width_of)
    )


def _block(users: Users, members: IntArray, width: int, usable: NDArray[np.bool_], dtype: DTypeLike) -> Block:
    items, ok = users.items_per_user[members], usable[members]
    slot = np.arange(width)
    real = (slot < items[:, None]) & ok[:, None]
    row = np.where(real, users.offsets[members][:, None] + slot, 0)
    features = np.zeros((len(members), width, users.n_features), dtype)
    features[real] = users.rows[row[real]]
    targets = np.zeros((len(members), width), dtype)
    if users.targets is not None:
        targets[real] = users.targets[row[real]]
    weights = (real / items[:, None]).astype(dtype)
    return Block(features, targets, weights, ok)
