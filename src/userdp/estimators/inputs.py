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

from userdp.arrays import BoolArray, FloatArray, as_numeric_table, from_frame, is_frame, is_pandas
from userdp.data.stored import StoredUsers
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
    table = _as_array(X)
    if table.dtype.kind == "c":
        raise InvalidInputError("X must hold real numbers. Complex data not supported")
    if table.ndim != 2:  # scikit-learn's own message would quote cells
        raise InvalidInputError(f"X must have shape (n_rows, n_features), got shape {table.shape}")
    try:
        check_array(np.broadcast_to(False, table.shape), ensure_min_samples=2, input_name="X")
    except ValueError as error:
        raise InvalidInputError(str(error)) from None
    return as_numeric_table(table, "X", "(n_rows, n_features)")


def boolean_columns(X: ArrayLike) -> BoolArray:
    """Tell which columns are boolean by their type; cells are not looked at."""
    import polars as pl

    if is_pandas(X, "DataFrame"):
        return np.array([dtype.kind == "b" for dtype in X.dtypes])  # type: ignore[union-attr]
    if isinstance(X, pl.DataFrame):
        return np.array([dtype == pl.Boolean for dtype in X.dtypes])
    # A list has no type but those of its cells, and none of these may tell.
    table = _as_array(X)
    return np.full(table.shape[1], table.dtype.kind == "b")


def _as_array(X: ArrayLike) -> NDArray[Any]:
    """Turn lists into arrays of Python objects, and data frames into arrays once their types are numbers."""
    if isinstance(X, list | tuple):
        return np.array(X, dtype=object)
    return from_frame(X, "features") if is_frame(X) else np.asarray(X)


def numeric_targets(y: ArrayLike | None) -> FloatArray:
    """Turn regression targets into floats; one that is not a number makes its user null."""
    if _is_text_column(y):
        raise InvalidInputError(f"y must hold numbers, and its type is {y.dtype}")  # type: ignore[union-attr]
    return as_numeric_table(_one_column(y, "target")[:, None], "y", "(n_rows,)")[:, 0]


def encode_classes(y: ArrayLike | None, classes: tuple[Any, ...]) -> FloatArray:
    """Code the declared classes as 0, 1, ...; a label that was not declared makes its user null."""
    labels = _one_column(y, "label")
    kinds = "UTO" if isinstance(classes[0], str) else "biufO"
    if labels.dtype.kind not in kinds or (_is_text_column(y) and "U" not in kinds):
        raise InvalidInputError(
            f"y has type {getattr(y, 'dtype', labels.dtype)} and the declared classes are {classes!r}; declare "
            "the labels as they are in y, for example classes=('no', 'yes')"
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


def check_stored(
    users: StoredUsers, y: ArrayLike | None, groups: ArrayLike | None, classes: tuple[Any, ...] | None
) -> None:
    """Refuse stored users whose label is not what is to be predicted; ``classes`` is None for a number."""
    if y is not None or groups is not None:
        raise InvalidInputError(
            "stored users bring their label and whose row is whose: leave y and groups out"
        )
    if not users.has_targets:
        raise InvalidInputError("these users were stored without a label; store them with label=...")
    if users.classes != classes:
        raise InvalidInputError(
            f"these users were stored with classes={users.classes!r}, and the estimator predicts "
            f"{'a number' if classes is None else f'classes={classes!r}'}; store them with classes={classes!r}"
        )


def _one_column(y: ArrayLike | None, what: str) -> NDArray[Any]:
    if y is None:
        raise InvalidInputError(f"y should be a 1d array, one {what} per row, got None")
    # A list has the types of its cells: as an array, one text among numbers would turn all of them into text.
    column = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if column.dtype.kind == "c":
        raise InvalidInputError("y must hold real numbers or labels. Complex data not supported")
    if column.ndim == 2 and column.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=5
        )
        column = column[:, 0]
    if column.ndim != 1:
        raise InvalidInputError(f"y should be a 1d array, one {what} per row, got shape {column.shape}")
    return column


def _is_text_column(y: Any) -> bool:
    """Tell whether a data frame's column is text by its type; as an array it holds Python objects."""
    import polars as pl

    if isinstance(y, pl.Series):
        return y.dtype in (pl.String, pl.Categorical, pl.Enum)
    if isinstance(y, np.ndarray):
        return y.dtype.kind in "UST"
    if not is_pandas(y, "Series"):
        return False
    if str(y.dtype) == "category":
        return y.dtype.categories.dtype.kind not in "biuf"
    return str(y.dtype) in ("str", "string")


def _lookup(code_of: dict[Any, float], label: Any) -> float:
    try:
        return code_of.get(label, np.nan)
    except TypeError:  # a label that cannot be a class: a list, a dict
        return np.nan
