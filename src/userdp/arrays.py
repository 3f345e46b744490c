"""Names for the arrays that pass between modules, and how input becomes one."""

import math
import sys
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from userdp.errors import InvalidInputError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
SmallIntArray: TypeAlias = NDArray[np.uint16]
BoolArray: TypeAlias = NDArray[np.bool_]


def as_numeric_table(values: ArrayLike, name: str, shape: str) -> FloatArray:
    """Turn input into a two-dimensional float64 array; errors depend on its type and shape alone.

    In an array of Python objects, a value that is not a number becomes NaN: it makes its user null instead of
    showing in an error. A data frame's column that is not a number by its type is refused.
    """
    array = values if isinstance(values, np.ndarray) else _from_python(values, name)
    if array.dtype.kind not in "biufO":
        raise InvalidInputError(f"{name} must be numeric, got type {array.dtype}; encode other columns first")
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{name} must have shape {shape} and not be empty, got shape {array.shape}")
    with np.errstate(all="ignore"):
        return (_to_floats(array) if array.dtype.kind == "O" else array).astype(np.float64, copy=False)


def is_finite(value: Any) -> bool:
    """Tell whether an argument is a finite number; what is not a number at all is not."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


def is_count(value: Any) -> bool:
    """Tell whether an argument is a whole number, at least 1."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def is_pandas(source: object, kind: str) -> bool:
    """Tell whether something is a pandas object, without importing pandas."""
    return _is_from("pandas", source, kind)


def _is_from(library: str, source: object, kind: str) -> bool:
    module = sys.modules.get(library)
    return module is not None and isinstance(source, getattr(module, kind))


def _from_python(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values, list | tuple):
        return np.array(values, dtype=object)
    if is_frame(values):
        return from_frame(values, name)
    return np.asarray(values)


def is_frame(values: object) -> bool:
    """Tell whether something is a data frame of pandas or polars."""
    return is_pandas(values, "DataFrame") or _is_from("polars", values, "DataFrame")


def from_frame(frame: Any, name: str) -> NDArray[Any]:
    """Read a data frame whose columns are numbers by type; those of Python objects have the types of their cells.

    Raises
    ------
    InvalidInputError
        If there are others, with their names.
    """
    return _from_pandas(frame, name) if is_pandas(frame, "DataFrame") else _from_polars(frame, name)


def _from_pandas(frame: Any, name: str) -> NDArray[Any]:
    objects = [isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in frame.dtypes]
    columns = zip(frame.columns, frame.dtypes, objects, strict=True)
    _refuse((c for c in columns if not c[2] and c[1].kind not in "biuf"), name)
    if any(objects):
        return np.asarray(frame, dtype=object)
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _from_polars(frame: Any, name: str) -> NDArray[Any]:
    import polars as pl

    columns = [(column, dtype, dtype == pl.Object) for column, dtype in frame.schema.items()]
    _refuse((c for c in columns if not (c[2] or c[1].is_numeric() or c[1] == pl.Boolean)), name)
    if any(is_object for *_, is_object in columns):
        return np.asarray(frame)
    return np.asarray(frame.select(pl.all().cast(pl.Float64)).to_numpy())


def _refuse(columns: Iterable[tuple[Any, Any, bool]], name: str) -> None:
    named = ", ".join(f"{column!r} ({dtype})" for column, dtype, _ in columns)
    if named:
        raise InvalidInputError(
            f"{name} must be numbers, and these columns are not: {named}; leave them out, or encode them with "
            "their public categories first"
        )


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


_to_floats = np.frompyfunc(_to_float, 1, 1)
