"""Whose row is whose: from one id per row to rows ordered by user."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import IntArray
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl


class Grouping(NamedTuple):
    """Rows ordered by user.

    Attributes
    ----------
    order : array of shape (n_rows,)
        User j owns the rows ``order[offsets[j]:offsets[j + 1]]`` of the table, in the table's order.
    offsets : array of shape (n_users + 1,)
        Where each user starts.
    """

    order: IntArray
    offsets: IntArray


def group_rows(groups: "ArrayLike | pl.DataFrame | None", n_rows: int, name: str = "groups") -> Grouping:
    """Order rows by user: users by their sorted ids, a user's own rows as they came.

    Parameters
    ----------
    groups : array of shape (n_rows,), or a data frame whose columns together are the id
        Text, numbers, dates, categories or structs of these.
    n_rows : int
        How many ids to expect.
    name : str
        What an error calls the ids.

    Raises
    ------
    InvalidInputError
        For missing, null or wrongly shaped ids: an id that is not known protects nobody.

    Examples
    --------
    >>> order, offsets = group_rows(["bob", "ann", "bob"], n_rows=3)
    >>> order.tolist(), offsets.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    if groups is None:
        raise InvalidInputError(f"{name} is missing: pass one user id per row, it says whose row is whose")
    import polars as pl

    ids = groups.get_columns() if isinstance(groups, pl.DataFrame) else [_as_series(groups, name)]
    keys = [key for column in ids for key in _plain_columns(column, name)]
    if len(keys[0]) != n_rows:
        raise InvalidInputError(f"{name} must have one id per row: {n_rows} rows, {len(keys[0])} ids")
    if any(key.null_count() or (key.dtype.is_float() and key.is_nan().any()) for key in keys):
        raise InvalidInputError(f"{name} has null ids; give every row its user, or drop such rows")

    # Hashing rows into users and sorting the users is several times faster than ranking or sorting the rows.
    table = pl.DataFrame([key.alias(f"id{k}") for k, key in enumerate(keys)])
    by = table.columns
    rows = table.with_row_index("row").group_by(by).agg("row").sort(by)["row"]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(rows.list.len().to_numpy(), out=offsets[1:])
    return Grouping(rows.explode().to_numpy().astype(np.int64), offsets)


def _as_series(groups: ArrayLike, name: str) -> "pl.Series":
    import polars as pl

    if isinstance(groups, pl.Series):
        return groups
    ids = np.asarray(groups)
    try:
        if ids.ndim != 1:
            raise TypeError
        return pl.Series("user", ids.tolist() if ids.dtype == object else ids)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise _not_plain(name) from None


def _plain_columns(ids: "pl.Series", name: str) -> "list[pl.Series]":
    """Take structs apart, so that a null inside one is seen."""
    import polars as pl

    if isinstance(ids.dtype, pl.Struct):
        fields = ids.struct.unnest().get_columns()
        return [key for field in fields for key in _plain_columns(field, name)]
    if ids.dtype.is_nested() or ids.dtype == pl.Object:
        raise _not_plain(name)
    return [ids]


def _not_plain(name: str) -> InvalidInputError:
    return InvalidInputError(f"{name} must be one plain id (text, number, date) per row")
