"""From a table's cells to numbers: plain numbers, and categories that were declared.

What a column may be is decided by its type and by what the caller declared. A cell that does not fit becomes
NaN, which makes its user null; it never shows in an error.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from userdp.arrays import BoolArray, FloatArray
from userdp.data.tables import Kind, Table, as_names, quoted
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

Value: TypeAlias = str | float | bool
Categories: TypeAlias = Mapping[str, Sequence[Any]]

_TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, or of booleans by its type."""

    name: str
    boolean: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The one feature it makes."""
        return (self.name,)

    def encode(self, cells: "pl.Series") -> FloatArray:
        """Return an array of shape (n_rows, 1)."""
        return as_numbers(cells)[:, None]


@dataclass(frozen=True)
class CategoryColumn:
    """A column of declared categories, one-hot encoded.

    Attributes
    ----------
    name : str
        The column.
    values : tuple
        The declared categories, all text or all numbers.
    other : bool
        Whether a last feature collects every other value; without it they are NaN. An empty cell always is.
    """

    name: str
    values: tuple[Value, ...]
    other: bool

    @property
    def feature_names(self) -> tuple[str, ...]:
        """``carrier=AA``, ..., and ``carrier=(other)`` where it collects the rest."""
        declared = (f"{self.name}={_written(value)}" for value in self.values)
        return (*declared, f"{self.name}=(other)") if self.other else tuple(declared)

    def encode(self, cells: "pl.Series") -> FloatArray:
        """Return an array of shape (n_rows, n_categories)."""
        codes = as_codes(cells, self.values)
        if self.other:
            codes[np.isnan(codes) & _present(cells)] = len(self.values)
        one_hot: FloatArray = (codes[:, None] == np.arange(len(self.feature_names))).astype(np.float64)
        one_hot[np.isnan(codes)] = np.nan
        return one_hot


@dataclass(frozen=True)
class Encoding:
    """How a row of a table becomes a row of numbers; public knowledge, fixed before any cell is read."""

    columns: tuple[NumberColumn | CategoryColumn, ...]

    @property
    def column_names(self) -> list[str]:
        """The columns it reads."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features it makes."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def booleans(self) -> tuple[bool, ...]:
        """Which features are 0 or 1 by type or declaration."""
        return tuple(
            isinstance(column, CategoryColumn) or column.boolean
            for column in self.columns
            for _ in column.feature_names
        )

    def float_type(self, table: Table) -> type[np.floating[Any]]:
        """Return float32 if it holds every number of the columns' types, else float64."""
        numbers = [column.name for column in self.columns if isinstance(column, NumberColumn)]
        return np.float32 if all(table.fits_float32(name) for name in numbers) else np.float64

    def encode(self, frame: "pl.DataFrame", dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
        """Return an array of shape (n_rows, n_features); what is too large for ``dtype`` becomes infinite."""
        X = np.empty((len(frame), len(self.feature_names)), dtype=dtype)
        start = 0
        with np.errstate(over="ignore"):
            for column in self.columns:
                stop = start + len(column.feature_names)
                X[:, start:stop] = column.encode(frame[column.name])
                start = stop
        return X


def choose_features(
    table: Table,
    features: str | Sequence[str] | None,
    categories: Categories | None = None,
    other: str | Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Encoding:
    """Decide from the schema and the arguments alone how features are encoded.

    Parameters
    ----------
    table : Table
        Only its schema is read.
    features : sequence of str, optional
        The columns, in the order of the features; by default every column that is not excluded.
    categories : mapping of str to sequence
        The categories of the columns that are not numbers.
    other : sequence of str
        Columns among those whose undeclared values make one more category.
    exclude : sequence of str
        The user and label columns.
    """
    categories, other = categories or {}, as_names(other)
    names = as_names(features) if features is not None else [c for c in table.schema if c not in exclude]
    table.require([*names, *categories])
    if not names:
        raise InvalidInputError("no column is left for features; name at least one")
    if repeated := _repeated(names):
        raise InvalidInputError(f"features names {quoted(repeated)} twice")
    if taken := [name for name in names if name in exclude]:
        raise InvalidInputError(f"{quoted(taken)} cannot be a feature: it is the user or the label")
    if stray := [name for name in categories if name not in names]:
        raise InvalidInputError(
            f"categories are declared for {quoted(stray)}, which is not among the features"
        )
    if stray := [name for name in other if name not in categories]:
        raise InvalidInputError(f"other names {quoted(stray)}, for which no categories are declared")

    numbers = [name for name in names if name not in categories]
    _require_numbers(table, numbers, named=features is not None)
    encoding = Encoding(
        tuple(
            CategoryColumn(name, declared_values(table, name, categories[name], "category"), name in other)
            if name in categories
            else NumberColumn(name, table.is_boolean(name))
            for name in names
        )
    )
    if repeated := _repeated(encoding.feature_names):
        raise InvalidInputError(f"two features are both called {quoted(repeated)}; rename a column")
    return encoding


def _require_numbers(table: Table, columns: Sequence[str], named: bool) -> None:
    kinds: dict[str, Kind] = {name: table.kind(name) for name in columns}
    if text := [name for name, kind in kinds.items() if kind in ("text", "other")]:
        types = ", ".join(f"{name!r} ({table.schema[name]})" for name in text)
        raise InvalidInputError(
            f"features must be numbers, and these columns are not: {types}; declare the categories of a text "
            f'column, as in categories={{"{text[0]}": ["A", "B"]}}, or leave the column out of features'
        )
    untyped = [name for name, kind in kinds.items() if kind == "untyped"]
    if untyped and not named:
        raise InvalidInputError(
            f"{table.name} does not say which columns are numbers; name the features among {quoted(untyped)}"
        )


def declared_values(table: Table, column: str, values: Iterable[Any], what: str) -> tuple[Value, ...]:
    """Check declared categories or classes against a column's type; they become all text or all numbers."""
    declared = [values] if isinstance(values, str) else list(values)
    numeric = [isinstance(value, bool | int | float | np.bool_ | np.number) for value in declared]
    kind = table.kind(column)
    if kind == "other":
        raise InvalidInputError(f"column {column!r} ({table.schema[column]}) cannot hold a {what}")
    if kind == "text" and any(numeric):
        raise InvalidInputError(f"column {column!r} is text, but a declared {what} is a number; declare text")
    if kind == "untyped" and any(numeric) and not all(numeric):
        raise InvalidInputError(f"declare each {what} of {column!r} as text, or each as a number")

    chosen: tuple[Value, ...]
    if kind == "number" or (declared and all(numeric)):
        chosen = tuple(_as_number(value) for value in declared)
        if not np.isfinite(chosen).all():
            raise InvalidInputError(f"column {column!r} is numeric, but a declared {what} is not a number")
    else:
        chosen = tuple(str(value) for value in declared)
    if not chosen or _repeated(chosen):
        raise InvalidInputError(f"declare each {what} of {column!r} once, and at least one")
    return chosen


def as_numbers(cells: "pl.Series") -> FloatArray:
    """Read cells as numbers; text as it is written, true and false as 1 and 0, anything else as NaN."""
    import polars as pl

    if cells.dtype != pl.String:
        return cells.cast(pl.Float64, strict=False).to_numpy()
    text = cells.str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() > text.null_count():
        truth = text.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Float64)
        numbers = numbers.fill_null(truth)
    return numbers.to_numpy()


def as_codes(cells: "pl.Series", values: Sequence[Value]) -> FloatArray:
    """Return each cell's place among the declared values, NaN where it is not declared."""
    import polars as pl

    as_text = isinstance(values[0], str)
    known = cells.cast(pl.String) if as_text else pl.Series(as_numbers(cells), dtype=pl.Float64)
    if cells.dtype == pl.Float32:  # 0.1 is declared in double precision
        values = [float(np.float32(value)) for value in values]
    codes = known.replace_strict(values, range(len(values)), default=None, return_dtype=pl.Float64)
    return codes.to_numpy(writable=True)


def _present(cells: "pl.Series") -> BoolArray:
    present = cells.is_not_nan() & cells.is_not_null() if cells.dtype.is_float() else cells.is_not_null()
    return present.fill_null(False).to_numpy()


def _as_number(value: Any) -> float:
    try:
        return _TRUTH[value.lower()] if isinstance(value, str) and value.lower() in _TRUTH else float(value)
    except (TypeError, ValueError):
        return np.nan


def _written(value: Value) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _repeated(names: Sequence[Any]) -> list[Any]:
    return [name for name, times in Counter(names).items() if times > 1]
