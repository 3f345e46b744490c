"""Rows that belong to users: a ragged table, sorted by user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray, IntArray, as_numeric_table
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

    Examples
    --------
    >>> users = Users.from_rows([[1.0], [5.0], [3.0]], groups=["ann", "bob", "ann"])
    >>> users.n_users, users.means().tolist()
    (2, [[2.0], [5.0]])
    """

    rows: FloatArray
    offsets: IntArray

    @classmethod
    def from_rows(cls, X: ArrayLike, groups: ArrayLike | None) -> "Users":
        """Group rows by user; no Python loop over users or rows."""
        rows = as_numeric_table(X, "X", "(n_rows, n_features)")
        order, offsets = group_rows(groups, len(rows))
        return cls(rows[order], offsets)

    @property
    def n_users(self) -> int:
        """How many users there are, null ones included."""
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return int(self.rows.shape[1])

    @property
    def items_per_user(self) -> IntArray:
        """How many rows each user has; private."""
        return np.diff(self.offsets)

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
