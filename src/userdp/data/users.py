"""Rows that belong to users: a ragged table, sorted by user."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray, IntArray, as_numeric_table
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Users:
    """All users' rows, one user after the other.

    Attributes
    ----------
    rows : array of shape (n_rows, n_features)
        Sorted by user; a user's own rows keep their order.
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
        codes = user_codes(groups, len(rows))
        order = np.argsort(codes, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes))])
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
        one, and no running total crosses from one user to the next.
        """
        if min_items < 1:
            raise InvalidInputError(f"min_items must be at least 1, got {min_items}")
        items = self.items_per_user[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            averages = np.add.reduceat(self.rows, self.offsets[:-1], axis=0) / items
        usable = (items >= min_items) & np.isfinite(averages).all(axis=1, keepdims=True)
        return np.where(usable, averages, np.nan)


def user_codes(groups: ArrayLike | None, n_rows: int) -> IntArray:
    """Give the users the numbers 0, 1, ... in the order of their ids.

    Raises
    ------
    InvalidInputError
        For missing, null or wrongly shaped ids: an id that is not known protects nobody.
    """
    if groups is None:
        raise InvalidInputError("groups is missing: pass one user id per row, it says whose row is whose")
    import polars as pl

    ids = groups if isinstance(groups, pl.Series) else _as_series(groups)
    if len(ids) != n_rows:
        raise InvalidInputError(f"groups must have one id per row: {n_rows} rows, {len(ids)} ids")
    if ids.null_count() or (ids.dtype.is_float() and ids.is_nan().any()):
        raise InvalidInputError("groups has null ids; give every row its user, or drop such rows")
    return ids.rank("dense").to_numpy().astype(np.int64) - 1


def _as_series(groups: ArrayLike) -> "pl.Series":
    import polars as pl

    ids = np.asarray(groups)
    try:
        if ids.ndim != 1:
            raise TypeError
        return pl.Series("user", ids.tolist() if ids.dtype == object else ids)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise InvalidInputError("groups must be one plain id (text, number, date) per row") from None
