"""Input is read by its schema: a cell out of place nulls its user, and never shows in an error or a type."""

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import userdp
from tests.estimators.tables import table
from userdp.errors import InvalidInputError
from userdp.estimators import base, inputs
from userdp.estimators.inputs import check_classes, encode_classes, numeric_targets, read_rows

SECRET = "s3cret"


class NoDraws:
    """A noise source that must not be touched."""

    seeded = False

    def __getattr__(self, name):
        raise AssertionError(f"{name} was called: noise was drawn on bad input")


@pytest.mark.parametrize(
    "X",
    [
        [[1.0, 2.0], [SECRET, 3.0]],
        np.array([[1.0, 2.0], [SECRET, 3.0]], dtype=object),
        np.array([[1.0, 2.0], [{"a": 1}, 3.0]], dtype=object),
        pd.DataFrame({"a": np.array([1.0, SECRET], dtype=object), "b": [2.0, 3.0]}),
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [2.0, 3.0]}),
        pd.DataFrame({"a": np.array([1.0, None], dtype=object), "b": [2, 3]}),
        pl.DataFrame({"a": [1, None], "b": [2.0, 3.0]}),
        np.array([[1.0, 2.0], [10**400, 3.0]], dtype=object),
    ],
)
def test_a_cell_that_is_no_number_becomes_nan(X):
    rows = read_rows(X)
    assert rows.dtype == np.float64
    assert np.array_equal(rows, [[1.0, 2.0], [np.nan, 3.0]], equal_nan=True)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float32, np.longdouble])
def test_every_type_of_number(dtype):
    assert read_rows(np.array([[0, 1], [1, 0]], dtype=dtype)).tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (scipy.sparse.eye_array(3), "toarray"),
        (np.full(3, 123.0), "shape"),
        (np.zeros((3, 0)), "0 feature"),
        (np.zeros((1, 3)), "1 sample"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.array([["a", "b"], ["c", "d"]]), "numeric"),
        (np.zeros((3, 2), complex), "Complex"),
        (np.zeros((3, 2), "datetime64[s]"), "numeric"),
        (pd.DataFrame({"x": [1, 2], "town": ["a", "b"]}), r"'town' \(str"),
        (pd.DataFrame({"x": [1, 2], "town": pd.Categorical(["a", "b"])}), r"'town' \(category\)"),
        (pd.DataFrame({"x": [1, 2], "day": pd.to_datetime(["2020-01-01"] * 2)}), "'day'"),
        (pl.DataFrame({"x": [1, 2], "town": ["a", "b"]}), r"'town' \(String\)"),
        ([], "shape"),
        ([[1, 2], [3]], "shape"),
        (None, "X"),
        ("text", "X"),
    ],
)
def test_refused_features(X, match):
    with pytest.raises(InvalidInputError, match=match) as caught:
        read_rows(X)
    assert "123" not in str(caught.value)


@pytest.mark.parametrize(
    "y", [[0, 1, SECRET, 1], [0, 1, None, 1], [0, 1, [1], 1], [0, 1, 7, 1], [0, 1, "1", 1]]
)
def test_one_label_out_of_place_nulls_no_other_row(y):
    """As an array, [0, 1, 'a'] would be text, and nobody's label a declared class."""
    for labels in (y, tuple(y), pd.Series(y, dtype=object)):
        assert np.array_equal(encode_classes(labels, (0, 1)), [0, 1, np.nan, 1], equal_nan=True)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([False, True]), (0, 1)),
        (np.array([0.0, 1.0]), (0, 1)),
        ([np.int64(0), True], (0, 1)),
        (np.array(["no", "yes"]), ("no", "yes")),
        (pd.Series(["no", "yes"]), ("no", "yes")),
        (pd.Series(["no", "yes"], dtype="category"), ("no", "yes")),
        (pd.Series([0, 1], dtype="Int64"), (0, 1)),
        (np.array([7, -3]), (7, -3)),
    ],
)
def test_classes_are_coded_in_their_order(y, classes):
    assert encode_classes(y, classes).tolist() == [0.0, 1.0]


def test_pandas_missing_labels_are_null():
    found = encode_classes(pd.Series([0, None, 1], dtype="Int64"), (0, 1))
    assert np.array_equal(found, [0, np.nan, 1], equal_nan=True)
    found = encode_classes(pd.Series(["a", None, "b"]), ("a", "b"))
    assert np.array_equal(found, [0, np.nan, 1], equal_nan=True)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", "b"]),
        pd.Series(["a", "b"]),
        pl.Series(["a", "b"]),
        pl.Series(["a"], dtype=pl.Categorical),
    ],
)
def test_text_labels_and_numeric_classes_are_refused_by_type(y):
    with pytest.raises(InvalidInputError, match=r"y has type .* declare the labels"):
        encode_classes(y, (0, 1))


@pytest.mark.parametrize(
    "y", [[1.5, SECRET], [1.5, None], pd.Series([1.5, None]), np.array([1.5, {}], object)]
)
def test_a_target_that_is_no_number_becomes_nan(y):
    assert np.array_equal(numeric_targets(y), [1.5, np.nan], equal_nan=True)


@given(st.lists(st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans()), min_size=1))
def test_labels_and_targets_of_any_kind_are_read(y):
    codes = encode_classes(y, (0, 1))
    assert codes.tolist() == pytest.approx(
        [float(v) if not isinstance(v, str) and v is not None and v in (0, 1) else float("nan") for v in y],
        nan_ok=True,
    )
    assert numeric_targets(y).shape == (len(y),)


@pytest.mark.parametrize("read", [numeric_targets, lambda y: encode_classes(y, (0, 1))])
@pytest.mark.parametrize("y", [None, np.zeros((3, 2)), 5.0, np.zeros(3, complex), np.array(["a", "b"])])
def test_refused_targets(read, y):
    with pytest.raises(InvalidInputError, match="y "):
        read(y)


@pytest.mark.parametrize(
    "classes",
    [
        (),
        (0,),
        (0, 0),
        (0, False),
        "ab",
        None,
        3,
        [[0], [1]],
        (0, "a"),
        (0, None),
        (0, float("nan")),
        ({}, 1),
    ],
)
def test_refused_classes(classes):
    with pytest.raises(InvalidInputError, match="classes"):
        check_classes(classes)


def test_declared_classes_are_plain():
    assert check_classes(np.array([0, 2, 1])) == (0, 2, 1)
    assert check_classes(pd.Index(["a", "b"])) == ("a", "b")
    assert all(type(value) is int for value in check_classes(np.array([0, 1])))


BAD_PARAMETERS = [
    {"epsilon": 0.0},
    {"epsilon": -1.0},
    {"epsilon": float("nan")},
    {"epsilon": float("inf")},
    {"epsilon": "1"},
    {"epsilon": None},
    {"delta": 0.0},
    {"delta": 1.0},
    {"delta": "small"},
    {"ridge": -1.0},
    {"ridge": float("nan")},
    {"ridge": "no"},
    {"coefficient_bound": 0.0},
    {"coefficient_bound": float("inf")},
    {"coefficient_bound": float("nan")},
    {"rounds": 0},
    {"rounds": 2.5},
    {"rounds": True},
    {"max_items": 0},
    {"max_items": "3"},
    {"min_items": 0},
    {"min_items": None},
    {"min_items": 3, "max_items": 2},
    {"random_state": "seed"},
    {"classes": (1,)},
    {"classes": ("no", "yes")},
]


@pytest.mark.parametrize("parameters", BAD_PARAMETERS, ids=str)
def test_bad_parameters_are_refused_before_any_noise(parameters, monkeypatch):
    t = table()
    if "random_state" not in parameters:
        monkeypatch.setattr(base, "noise_source", lambda seed: NoDraws())
    with pytest.raises(InvalidInputError) as caught:
        userdp.LogisticRegression(**parameters).fit(t.X, t.labels, groups=t.groups)
    assert str(list(parameters)[-1]) in str(caught.value)


t = table()
BAD_CALLS = {
    "no groups": ((t.X, t.labels, None), "groups is missing"),
    "null ids": ((t.X, t.labels, [None, *t.groups[1:].tolist()]), "null ids"),
    "too few ids": ((t.X, t.labels, t.groups[1:]), "one id per row"),
    "too few labels": ((t.X, t.labels[1:], t.groups), "y must have one target per row"),
    "one user": ((t.X, t.labels, np.zeros(len(t.X))), "only one user"),
    "labels of two columns": ((t.X, np.zeros((len(t.X), 2)), t.groups), "1d array"),
    "text labels, numeric classes": ((t.X, np.full(len(t.X), "a"), t.groups), "declare the labels"),
    "flat features": ((t.X[:, 0], t.labels, t.groups), "X must have shape"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_are_refused_before_any_noise(case, monkeypatch):
    monkeypatch.setattr(base, "noise_source", lambda seed: NoDraws())
    (X, y, groups), match = BAD_CALLS[case]
    with pytest.raises(InvalidInputError, match=match) as caught:
        userdp.LogisticRegression().fit(X, y, groups=groups)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (userdp.QuantileRegressor(quantile=1.5), "quantile"),
        (userdp.HuberRegressor(threshold=-1.0), "threshold"),
        (userdp.LinearSVC(classes=(0, 1, 2)), "two classes"),
    ],
)
def test_settings_of_one_estimator(estimator, match):
    with pytest.raises(InvalidInputError, match=match):
        estimator.fit(t.X, t.labels, groups=t.groups)


def test_too_many_users_for_exact_sums_are_refused_before_any_noise(monkeypatch):
    from userdp.estimators import fitting
    from userdp.means.lattice import Lattice

    def too_many(*_):
        raise InvalidInputError("do not fit exact 64-bit sums")

    monkeypatch.setattr(base, "noise_source", lambda seed: NoDraws())
    monkeypatch.setattr(fitting, "Lattice", type("Full", (Lattice,), {"fine_enough": too_many}))
    with pytest.raises(InvalidInputError, match="64-bit"):
        userdp.LogisticRegression().fit(t.X, t.labels, groups=t.groups)


def test_booleans_are_known_by_their_type():
    """Not by their cells: a column of zeros and ones may hold anything for a neighbour."""
    cells = {"flag": [True, False], "number": [0.0, 1.0]}
    assert inputs.boolean_columns(pd.DataFrame(cells)).tolist() == [True, False]
    assert inputs.boolean_columns(pd.DataFrame({"flag": pd.array([True, None])})).tolist() == [True]
    assert inputs.boolean_columns(pl.DataFrame(cells)).tolist() == [True, False]
    assert inputs.boolean_columns(np.ones((3, 2), dtype=bool)).tolist() == [True, True]
    assert inputs.boolean_columns(np.ones((3, 2))).tolist() == [False, False]
    assert inputs.boolean_columns([[True, 1.0]]).tolist() == [False, False]


def test_a_cell_does_not_change_which_columns_are_boolean():
    """A list has the types of its cells, and the stages of a fit would follow them."""
    cells = [[True, False], [False, True]]
    other = [[0.5, False], [False, True]]
    assert not inputs.boolean_columns(cells).any()
    assert not inputs.boolean_columns(other).any()
    assert inputs.boolean_columns(np.array(cells)).all()


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(["yes", "no"]).astype("string"),
        pd.Series(["yes", "no"], dtype="category"),
        pl.Series(["yes", "no"]),
        pl.Series(["yes", "no"], dtype=pl.Categorical),
        np.array(["yes", "no"]),
    ],
)
def test_text_is_no_number_to_predict_and_no_class_of_numbers(y):
    with pytest.raises(InvalidInputError, match="y must hold numbers"):
        numeric_targets(y)
    with pytest.raises(InvalidInputError, match="declared classes"):
        encode_classes(y, (0, 1))


def test_categories_that_are_numbers_are_numbers():
    assert numeric_targets(pd.Series([2.0, 3.0], dtype="category")).tolist() == [2.0, 3.0]
    assert encode_classes(pd.Series([1, 0], dtype="category"), (0, 1)).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("engine", [userdp.engines.LocalEngine("gpu"), "gpu"])
@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU")
def test_an_engine_that_cannot_work_is_refused_before_noise(monkeypatch, engine):
    monkeypatch.setattr(base, "noise_source", lambda seed: NoDraws())
    with pytest.raises(InvalidInputError, match=r"gpu|engine must be"):
        userdp.LogisticRegression(engine=engine).fit(t.X, t.labels, groups=t.groups)
