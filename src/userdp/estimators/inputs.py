"""How an estimator reads its input: by schema, so that no error, warning or type depends on one user's cells.

A cell that is not a number, or a label that was not declared, becomes NaN and makes its user null.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array

from userdp.arrays import FloatArray, as_numeric_table
from userdp.data.frames import is_pandas
from userdp.errors import InvalidInputError


def read_rows(X: ArrayLike) -> FloatArray:
    """Turn features into a table of floats with at least two rows and one column.

    Raises
    ------
    InvalidInputError
        For text, complex numbers, sparse matrices and wrong shapes; a data frame's columns are named.
    """
    if issparse(X):
        raise InvalidInputError("X must be dense, sparse data is not supported; pass X.toarray()")
    table = _read_frame(X) if is_pandas(X, "DataFrame") else X
    if isinstance(table, list | tuple) or (isinstance(table, np.ndarray) and table.dtype.kind in "OUSMmV"):
        table = as_numeric_table(table, "X", "(n_rows, n_features)")
    try:  # cells are numbers by now, so scikit-learn's messages speak of shapes and types only
        checked = check_array(table, ensure_all_finite=False, ensure_min_samples=2, input_name="X")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(str(error)) from None
    return as_numeric_table(checked, "X", "(n_rows, n_features)")


def _read_frame(frame: Any) -> NDArray[Any]:
    """Read a pandas frame; columns of Python objects have the types of their cells, the others their own."""
    objects = [isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in frame.dtypes]
    text = [
        f"{name!r} ({dtype})"
        for name, dtype, is_object in zip(frame.columns, frame.dtypes, objects, strict=True)
        if not is_object and dtype.kind not in "biuf"
    ]
    if text:
        raise InvalidInputError(
            f"features must be numbers, and these columns are not: {', '.join(text)}; encode them with their "
            "public categories first"
        )
    if any(objects):
        return np.asarray(frame, dtype=object)
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def numeric_targets(y: ArrayLike | None) -> FloatArray:
    """Turn regression targets into floats; one that is not a number makes its user null."""
    return as_numeric_table(_one_column(y, "target")[:, None], "y", "(n_rows,)")[:, 0]


def encode_classes(y: ArrayLike | None, classes: tuple[Any, ...]) -> FloatArray:
    """Code the declared classes as 0, 1, ...; a label that was not declared makes its user null."""
    labels = _one_column(y, "label")
    if labels.dtype.kind not in ("UTO" if isinstance(classes[0], str) else "biufO"):
        raise InvalidInputError(
            f"y has type {labels.dtype} and the declared classes are {classes!r}; declare the labels as they are "
            "in y, for example classes=('no', 'yes')"
        )
    codes = np.full(labels.shape, np.nan)
    if labels.dtype.kind == "O":
        code_of = {value: float(code) for code, value in enumerate(classes)}
        codes[:] = [_lookup(code_of, label) for label in labels]
        return codes
    for code, value in enumerate(classes):
        codes[labels == value] = code
    return codes


def check_classes(classes: Any) -> tuple[Any, ...]:
    """Check the declared classes; they are public knowledge, never read off the labels."""
    try:
        if isinstance(classes, str):
            raise TypeError
        declared = tuple(value.item() if isinstance(value, np.generic) else value for value in classes)
        different = len(set(declared))
    except TypeError:
        raise InvalidInputError(f"classes must be a list of labels, got {classes!r}") from None
    if len(declared) < 2 or different != len(declared):
        raise InvalidInputError(
            f"classes must name at least two different labels, got {declared!r}; for example classes=(0, 1)"
        )
    all_text = all(isinstance(value, str) for value in declared)
    if not all_text and not all(isinstance(value, int | float) and np.isfinite(value) for value in declared):
        raise InvalidInputError(f"classes must be all text or all finite numbers, got {declared!r}")
    return declared


def _one_column(y: ArrayLike | None, what: str) -> NDArray[Any]:
    if y is None:
        raise InvalidInputError(f"y should be a 1d array, one {what} per row, got None")
    # A list has the types of its cells: as an array, one text among numbers would turn all of them into text.
    column = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if column.dtype.kind == "c":
        raise InvalidInputError("y must hold real numbers or labels. Complex data not supported")
    if column.ndim == 2 and column.shape[1] == 1:
        warnings.warn("y should be a 1d array, a column was passed", DataConversionWarning, stacklevel=4)
        column = column[:, 0]
    if column.ndim != 1:
        raise InvalidInputError(f"y should be a 1d array, one {what} per row, got shape {column.shape}")
    return column


def _lookup(code_of: dict[Any, float], label: Any) -> float:
    try:
        return code_of.get(label, np.nan)
    except TypeError:  # a label that cannot be a class: a list, a dict
        return np.nan
