"""From a table to users: who owns which rows, and the rows as numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from userdp.arrays import FloatArray, is_count
from userdp.data.encoding import Categories, Encoding, as_codes, as_numbers, choose_features, declared_values
from userdp.data.grouping import group_rows
from userdp.data.tables import Table, as_names, quoted, read_table
from userdp.data.users import Users
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

_ROWS_AT_ONCE = 2**17


@dataclass(frozen=True, repr=False)
class UserTable:
    """Users read from a table.

    Attributes
    ----------
    users : Users
        The features, sorted by user. A target is the place of the row's class among the declared ones, or a
        number for regression; NaN makes its user null.
    feature_names : tuple of str
        One per column of ``users.rows``.
    booleans : tuple of bool
        Which of them are 0 or 1 by the column's type or because its categories were declared.
    """

    users: Users
    feature_names: tuple[str, ...]
    booleans: tuple[bool, ...]

    @property
    def targets(self) -> FloatArray | None:
        """The label of each row of ``users.rows``."""
        return self.users.targets

    @property
    def n_users(self) -> int:
        """How many users there are, null ones included."""
        return self.users.n_users

    def __repr__(self) -> str:
        return f"UserTable(n_users={self.n_users}, feature_names={self.feature_names})"


def load_users(
    source: Any,
    *,
    user: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    classes: Sequence[Any] | None = (0, 1),
    categories: Categories | None = None,
    other: str | Sequence[str] = (),
    dtype: DTypeLike = np.float64,
) -> UserTable:
    """Read a table and group its rows by user.

    Types and declarations decide what is read, never the cells: a cell that does not fit (empty, not a
    number, a category or class that was not declared) becomes NaN, which makes its user null.

    Parameters
    ----------
    source : path, data frame, Arrow table, array or dict
        Whatever ``read_table`` takes.
    user : str or sequence of str
        The column, or the columns together, that say whose row it is.
    features : sequence of str, optional
        Columns of numbers, booleans or declared categories; by default all but the user and the label. A
        source without types (CSV files, Python objects) needs them named, and reads them as numbers.
    label : str, optional
        The column to predict.
    classes : sequence, optional
        The label's classes, which are numbered 0, 1, ... in this order; None reads the label as a number.
    categories : mapping of str to sequence, optional
        The values of each column that is not a number, as in ``{"carrier": ["AA", "UA"]}``. Each becomes a
        feature that is 0 or 1.
    other : sequence of str
        Columns among those whose other values become one more feature, instead of NaN.
    dtype : numpy.float64 or numpy.float32
        Of the rows. float64 holds what tables hold and suits means; float32 halves the memory and suits
        training.

    Raises
    ------
    InvalidInputError
        For files, schemas and arguments that cannot be used, and for null ids.

    Examples
    --------
    >>> trips = {"rider": ["bob", "ann", "bob"], "km": [1.0, 2.0, 3.0], "by": ["bus", "bus", "car"]}
    >>> table = load_users(trips, user="rider", features=["km", "by"], categories={"by": ["bus", "car"]})
    >>> table
    UserTable(n_users=2, feature_names=('km', 'by=bus', 'by=car'))
    >>> table.users.rows.tolist()
    [[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [3.0, 0.0, 1.0]]
    """
    reader = TableReader.of(source, user, features, label, classes, categories, other, dtype)
    ids, blocks, labels = [], [], []
    for frame, rows, targets in reader.batches(_ROWS_AT_ONCE):
        ids.append(frame.select(reader.user))
        blocks.append(rows)
        if targets is not None:
            labels.append(targets)
    return UserTable(
        _sorted_by_user(reader.table, ids, blocks, labels), reader.feature_names, reader.encoding.booleans
    )


@dataclass(frozen=True)
class TableReader:
    """How a table's rows become ids, features and targets; made from its schema and the declarations."""

    table: Table
    user: list[str]
    encoding: Encoding
    label: "_LabelReader | None"
    float_type: type[np.floating[Any]]

    @classmethod
    def of(
        cls,
        source: Any,
        user: str | Sequence[str],
        features: str | Sequence[str] | None,
        label: str | None,
        classes: Sequence[Any] | None,
        categories: Categories | None,
        other: str | Sequence[str],
        dtype: DTypeLike | None,
    ) -> "TableReader":
        """Check the arguments of :func:`load_users` against the table's schema.

        Without a ``dtype`` rows are float32 if it holds every number of the columns' types, and float64 otherwise.
        """
        table, user = read_table(source), as_names(user)
        if not (label is None or isinstance(label, str)):
            raise InvalidInputError(f"label must be the name of one column, got {type(label).__name__}")
        _check_categories(categories)
        roles = user if label is None else [*user, label]
        table.require(roles)
        if not user or len(set(roles)) < len(roles):
            raise InvalidInputError(f"user and label must be different columns, got {quoted(roles)}")
        encoding = choose_features(table, features, categories, other, exclude=roles)
        read_label = None if label is None else _LabelReader.of(table, label, classes)
        float_type = encoding.float_type(table) if dtype is None else _float_type(dtype)
        return cls(table, user, encoding, read_label, float_type)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One per column of the rows."""
        return self.encoding.feature_names

    def ids(self) -> "pl.DataFrame":
        """Read whose rows there are, and nothing else."""
        import polars as pl

        frames = list(self.table.batches(self.user, _ROWS_AT_ONCE))
        return pl.concat(frames) if frames else pl.DataFrame()

    def batches(self, size: int) -> "Iterator[tuple[pl.DataFrame, NDArray[Any], FloatArray | None]]":
        """Read all rows once, in order: the raw columns, the features, the targets."""
        roles = self.user if self.label is None else [*self.user, self.label.column]
        for frame in self.table.batches([*roles, *self.encoding.column_names], size):
            yield (
                frame,
                self.encoding.encode(frame, self.float_type),
                None if self.label is None else self.label(frame),
            )


def stream_features(
    source: Any,
    *,
    features: str | Sequence[str] | None = None,
    categories: Categories | None = None,
    other: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    size: int = 2**16,
    dtype: DTypeLike = np.float64,
) -> "Iterator[tuple[pl.DataFrame, NDArray[Any]]]":
    """Read features in batches of rows, encoded as by ``load_users``, from a file of any length.

    Parameters
    ----------
    source, features, categories, other, dtype
        As for ``load_users``; by default every column that is not kept is a feature.
    keep : sequence of str
        Columns to hand over as they are, such as ids.
    size : int
        The most rows in a batch.

    Yields
    ------
    kept : polars.DataFrame
        The kept columns.
    X : array of shape (n_rows, n_features)
        The features of the same rows; NaN where a cell does not fit.

    Examples
    --------
    >>> table = {"id": ["a", "b"], "x": [1.0, 2.0]}
    >>> for kept, X in stream_features(table, features=["x"], keep=["id"]):
    ...     print(kept["id"].to_list(), X.tolist())
    ['a', 'b'] [[1.0], [2.0]]
    """
    table, keep = read_table(source), as_names(keep)
    _check_categories(categories)
    encoding = choose_features(table, features, categories, other, exclude=keep if features is None else ())
    float_type = _float_type(dtype)
    if not is_count(size):
        raise InvalidInputError(f"size must be a whole number, at least 1, got {size!r}")
    table.require(keep)
    if repeated := [name for name in dict.fromkeys(keep) if keep.count(name) > 1]:
        raise InvalidInputError(f"keep names {quoted(repeated)} twice; name each column once")
    return (
        (frame.select(keep), encoding.encode(frame, float_type))
        for frame in table.batches([*keep, *encoding.column_names], size)
    )


@dataclass(frozen=True)
class _LabelReader:
    column: str
    classes: tuple[Any, ...] | None

    @classmethod
    def of(cls, table: Table, column: str, classes: Sequence[Any] | None) -> "_LabelReader":
        if classes is not None:
            if not isinstance(classes, Iterable):
                raise InvalidInputError(f"classes must be a list of labels, got {classes!r}")
            declared = declared_values(table, column, classes, "class")
            if len(declared) < 2:
                raise InvalidInputError("declare at least two classes, or classes=None for a numeric label")
            return cls(column, declared)
        if table.kind(column) not in ("number", "untyped"):
            raise InvalidInputError(
                f"label {column!r} ({table.schema[column]}) is not a number; declare classes"
            )
        return cls(column, None)

    def __call__(self, frame: "pl.DataFrame") -> FloatArray:
        cells = frame[self.column]
        return as_numbers(cells) if self.classes is None else as_codes(cells, self.classes)


def _sorted_by_user(
    table: Table, ids: "list[pl.DataFrame]", blocks: list[NDArray[Any]], labels: list[FloatArray]
) -> Users:
    """Write each block of rows straight to its place; the blocks are given up on the way."""
    import polars as pl

    n_rows = sum(map(len, blocks))
    if n_rows == 0:
        raise InvalidInputError(f"{table.name} has no rows")
    order, offsets = group_rows(pl.concat(ids), n_rows, f"user column {quoted(ids[0].columns)}")
    ids.clear()
    place = np.empty(n_rows, dtype=np.int64)
    place[order] = np.arange(n_rows)
    targets = np.concatenate(labels)[order] if labels else None
    del order

    rows = np.empty((n_rows, blocks[0].shape[1]), dtype=blocks[0].dtype)
    stop = n_rows
    while blocks:
        block = blocks.pop()
        rows[place[stop - len(block) : stop]] = block
        stop -= len(block)
    return Users(rows, offsets, targets)


def _check_categories(categories: Any) -> None:
    """Refuse what does not give a list of values for each column."""
    given = {} if categories is None else categories
    if not isinstance(given, Mapping) or not all(isinstance(values, Iterable) for values in given.values()):
        raise InvalidInputError(
            'categories must be a mapping of columns to their values, as in {"by": ["bus", "car"]}, '
            f"got {categories!r}"
        )


def _float_type(dtype: DTypeLike) -> type[np.floating[Any]]:
    for choice in (np.float64, np.float32):
        if dtype in (choice, choice.__name__, np.dtype(choice)):
            return choice
    raise InvalidInputError(f"dtype must be float64 or float32, got {dtype}")
