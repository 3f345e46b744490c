"""Rows that belong to users: a ragged table, sorted by user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import BoolArray, FloatArray, IntArray, as_numeric_table
from userdp.data.grouping import group_rows
from userdp.errors import InvalidInputError


@dataclass(frozen=True)
class Users:
    """All users' rows, one user after the other.

    Attributes
    ----------
    rows : array of shape (n_rows, n_features)
        Sorted by user; a user's own rows keep their order. float64, or float32 where a reader was asked to.
    offsets : array of shape (n_users + 1,)
        User j owns ``rows[offsets[j]:offsets[j + 1]]``.
    targets : array of shape (n_rows,), optional
        What is to be predicted for each row.

    Examples
    --------
    >>> users = Users.from_rows([[1.0], [5.0], [3.0]], groups=["ann", "bob", "ann"])
    >>> users.n_users, users.means().tolist()
    (2, [[2.0], [5.0]])
    """

    rows: FloatArray
    offsets: IntArray
    targets: FloatArray | None = None

    @classmethod
    def from_rows(cls, X: ArrayLike, groups: ArrayLike | None, y: ArrayLike | None = None) -> "Users":
        """Group rows by user; no Python loop over users or rows."""
        rows = as_numeric_table(X, "X", "(n_rows, n_features)")
        order, offsets = group_rows(groups, len(rows))
        targets = None if y is None else _as_targets(y, len(rows))[order]
        return cls(rows[order], offsets, targets)

    @property
    def n_users(self) -> int:
        """How many users there are, null ones included."""
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return int(self.rows.shape[1])

    @property
    def has_targets(self) -> bool:
        """Whether rows have targets."""
        return self.targets is not None

    @property
    def items_per_user(self) -> IntArray:
        """How many rows each user has; private."""
        return np.diff(self.offsets)

    def between(self, first: int, last: int) -> "Users":
        """Return consecutive users, without a copy."""
        offsets = self.offsets[first : last + 1]
        rows = slice(offsets[0], offsets[-1])
        return Users(
            self.rows[rows], offsets - offsets[0], None if self.targets is None else self.targets[rows]
        )

    def take(self, chosen: IntArray) -> "Users":
        """Return some of the users, in the given order."""
        items = self.items_per_user[chosen]
        offsets = np.concatenate([[0], np.cumsum(items)])
        rows = np.repeat(self.offsets[chosen] - offsets[:-1], items) + np.arange(offsets[-1])
        return Users(self.rows[rows], offsets, None if self.targets is None else self.targets[rows])

    def capped(self, max_items: int, generator: np.random.Generator) -> "Users":
        """Sample at most ``max_items`` of each user's own rows, which keep their order."""
        if max_items < 1:
            raise InvalidInputError(f"max_items must be at least 1, got {max_items}")
        items = self.items_per_user
        owner = np.repeat(np.arange(self.n_users), items)
        shuffled = np.lexsort((generator.random(len(self.rows)), owner))
        place = np.arange(len(self.rows)) - self.offsets[owner]
        kept = np.sort(shuffled[place < max_items])
        offsets = np.concatenate([[0], np.cumsum(np.minimum(items, max_items))])
        return Users(self.rows[kept], offsets, None if self.targets is None else self.targets[kept])

    def usable(self, min_items: int = 1) -> BoolArray:
        """Tell which users have at least ``min_items`` rows and only finite values; private."""
        finite = np.isfinite(self.rows).all(axis=1)
        if self.targets is not None:
            finite &= np.isfinite(self.targets)
        all_finite = np.logical_and.reduceat(finite, self.offsets[:-1])
        return all_finite & (self.items_per_user >= min_items)

    def means(self, min_items: int = 1) -> FloatArray:
        """Average each user's rows; a user with a non-finite value or under ``min_items`` rows is NaN.

        Each mean is bit for bit a function of that user's rows in their order: segments are summed one by
        one, in float64, and no running total crosses from one user to the next.
        """
        if min_items < 1:
            raise InvalidInputError(f"min_items must be at least 1, got {min_items}")
        items = self.items_per_user[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            averages = np.add.reduceat(self.rows, self.offsets[:-1], axis=0, dtype=np.float64) / items
        usable = (items >= min_items) & np.isfinite(averages).all(axis=1, keepdims=True)
        return np.where(usable, averages, np.nan)


def _as_targets(y: ArrayLike, n_rows: int) -> FloatArray:
    # A list has the types of its cells: as an array, one text among numbers would turn all of them into text.
    targets = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if targets.shape != (n_rows,):
        raise InvalidInputError(f"y must have one target per row: {n_rows} rows, shape {targets.shape}")
    return as_numeric_table(targets[:, None], "y", "(n_rows,)")[:, 0]
