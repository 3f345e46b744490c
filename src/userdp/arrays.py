"""Names for the arrays that pass between modules, and how input becomes one."""

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
    showing in an error.
    """
    array = values if isinstance(values, np.ndarray) else _from_python(values)
    if array.dtype.kind not in "biufO":
        raise InvalidInputError(f"{name} must be numeric, got type {array.dtype}; encode other columns first")
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{name} must have shape {shape} and not be empty, got shape {array.shape}")
    with np.errstate(all="ignore"):
        return (_to_floats(array) if array.dtype.kind == "O" else array).astype(np.float64, copy=False)


def _from_python(values: Any) -> NDArray[Any]:
    if isinstance(values, list | tuple):
        return np.array(values, dtype=object)
    return np.asarray(values)


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


_to_floats = np.frompyfunc(_to_float, 1, 1)
