"""Tables that are already in memory, as polars frames: pandas, NumPy, Arrow and plain columns.

Neither pandas nor pyarrow is imported: a pandas frame is read through its NumPy arrays, Arrow data through
the C stream that every Arrow library speaks.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from userdp.arrays import is_pandas
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl


@runtime_checkable
class ArrowStream(Protocol):
    """What pyarrow tables and record batch readers, DuckDB results and others offer."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def convert(source: object) -> "tuple[pl.DataFrame, frozenset[str]]":
    """Return the table, and the columns without a type of their own: Python objects, which become text."""
    import polars as pl

    if is_pandas(source, "DataFrame"):
        return _from_columns((str(name), column) for name, column in source.items())  # type: ignore[attr-defined]
    if isinstance(source, Mapping):
        return _from_columns((str(name), column) for name, column in source.items())
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, ArrowStream):
        try:
            return pl.DataFrame(source), frozenset()
        except (TypeError, ValueError, pl.exceptions.PolarsError):
            raise InvalidInputError("the Arrow stream does not hold a table") from None
    raise InvalidInputError(
        f"cannot read a table from {type(source).__name__}; pass a path, a pandas or polars data frame, "
        "an Arrow table, a NumPy array of shape (n_rows, n_columns) or a dict of columns"
    )


def _from_array(array: NDArray[Any]) -> "tuple[pl.DataFrame, frozenset[str]]":
    if array.ndim != 2:
        raise InvalidInputError(f"an array must have shape (n_rows, n_columns), got shape {array.shape}")
    # In a table of text, numbers were made text to fit in: its columns have no type of their own.
    columns = array.astype(object) if array.dtype.kind == "U" else array
    return _from_columns((f"x{k}", columns[:, k]) for k in range(array.shape[1]))


def _from_columns(columns: Iterable[tuple[str, Any]]) -> "tuple[pl.DataFrame, frozenset[str]]":
    import polars as pl

    series: dict[str, pl.Series] = {}
    untyped = set()
    for name, column in columns:
        if name in series:
            raise InvalidInputError(f"the table has two columns named {name!r}; rename one")
        series[name], typed = _as_series(name, column)
        if not typed:
            untyped.add(name)
    if len({len(column) for column in series.values()}) > 1:
        raise InvalidInputError("the table's columns differ in length")
    return pl.DataFrame(list(series.values())), frozenset(untyped)


def _as_series(name: str, column: Any) -> "tuple[pl.Series, bool]":
    """Return a polars column, and whether its type was the caller's choice."""
    import polars as pl

    if isinstance(column, pl.Series):
        return column.alias(name), True
    if is_pandas(column, "Series") and not isinstance(column.dtype, np.dtype):
        return _from_pandas_extension(name, column), True

    array = np.array(column, dtype=object) if isinstance(column, list | tuple) else np.asarray(column)
    if array.ndim != 1:
        raise InvalidInputError(f"column {name!r} must have one value per row, got shape {array.shape}")
    if array.dtype.kind == "O":
        return pl.Series(name, _to_text(array), dtype=pl.String), False
    if array.dtype.kind == "f" and array.itemsize not in (4, 8):
        array = array.astype(np.float64)
    if array.dtype.kind in "Mm" and np.datetime_data(array.dtype)[0] not in ("D", "ms", "us", "ns"):
        array = array.astype(f"{array.dtype.kind}8[us]")
    return pl.Series(name, array), True


def _from_pandas_extension(name: str, column: Any) -> "pl.Series":
    """Read a column of pandas' own types: nullable numbers, text, categories, times with a zone."""
    import polars as pl

    values = column.to_numpy(dtype=object, na_value=None)
    numbers = {"i": pl.Int64, "u": pl.UInt64, "f": pl.Float64, "b": pl.Boolean}
    if column.dtype.kind in numbers:
        return pl.Series(name, values.tolist(), dtype=numbers[column.dtype.kind])
    return pl.Series(name, _to_text(values), dtype=pl.String)


def _text(value: Any) -> str | None:
    """Write a Python value as a cell; equal numbers are written alike, so that one id stays one user."""
    try:
        if value is None or value != value:  # NaN, NaT
            return None
    except (TypeError, ArithmeticError):  # pandas.NA and signalling NaN refuse to be compared
        return None
    except ValueError:  # an array in a cell
        pass
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


_to_text = np.frompyfunc(_text, 1, 1)
