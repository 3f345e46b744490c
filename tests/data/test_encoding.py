import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdp.data.encoding import as_codes, as_numbers, choose_features
from userdp.data.tables import read_table
from userdp.errors import InvalidInputError

CARRIERS = ["AA", "UA", "DL"]
TABLE = pl.DataFrame(
    {
        "id": ["secret-a", "secret-b"],
        "km": [1.0, 2.0],
        "month": [1, 12],
        "night": [True, False],
        "carrier": ["AA", "secret-c"],
        "plane": pl.Series(["A320", "secret-d"], dtype=pl.Categorical),
        "day": pl.Series(["2013-01-01", "2013-01-02"]).str.to_date(),
        "parts": [[1], [2]],
    }
)


def encode(frame, features=None, categories=None, other=()):
    encoding = choose_features(read_table(frame), features, categories, other)
    return encoding.feature_names, encoding.encode(read_table(frame).frame.collect()).tolist()


@given(st.lists(st.floats() | st.none(), max_size=20))
def test_numbers_survive_their_text(values):
    """What a CSV file says is read back bit for bit."""
    cells = pl.Series([None if value is None else repr(value) for value in values], dtype=pl.String)
    expected = [np.nan if value is None else value for value in values]
    np.testing.assert_array_equal(as_numbers(cells), np.array(expected, dtype=float))


@given(st.text(max_size=8))
def test_any_text_is_a_number_or_nan(text):
    try:
        expected = float(text)
    except ValueError:
        expected = {"true": 1.0, "false": 0.0}.get(text.strip().lower(), np.nan)
    number = as_numbers(pl.Series([text]))[0]
    # Python also reads digits of other scripts and underscores, which no table means.
    assert number == expected or math.isnan(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 1.5 ", 1.5), ("-2e3", -2000), ("True", 1), ("FALSE", 0), ("inf", np.inf), ("1e999", np.inf)]
    + [(text, np.nan) for text in ("", "n/a", "1,5", "0x10", "1.5.2", "yes", "NaN")],
)
def test_how_text_is_read(text, number):
    np.testing.assert_array_equal(as_numbers(pl.Series([text])), [number])


@given(st.lists(st.sampled_from([*CARRIERS, "WN", "", "aa"]) | st.none(), max_size=20), st.booleans())
def test_one_hot(cells, other):
    table = read_table(pl.DataFrame({"carrier": cells}, schema={"carrier": pl.String}))
    encoding = choose_features(table, None, {"carrier": CARRIERS}, ["carrier"] if other else [])
    X = encoding.encode(table.frame.collect())
    assert X.shape == (len(cells), len(encoding.feature_names)) == (len(cells), 3 + other)
    for cell, row in zip(cells, X, strict=True):
        if cell is None or (cell not in CARRIERS and not other):
            assert np.isnan(row).all()
        else:
            hot = CARRIERS.index(cell) if cell in CARRIERS else 3
            assert row.tolist() == [float(k == hot) for k in range(3 + other)]


@given(st.lists(st.integers(-3, 9) | st.none(), max_size=20))
def test_codes_are_places_among_the_declared(cells):
    classes = (4.0, 0.0, 1.0)
    codes = as_codes(pl.Series(cells, dtype=pl.Int64), classes)
    expected = [classes.index(cell) if cell in classes else np.nan for cell in cells]
    np.testing.assert_array_equal(codes, np.array(expected, dtype=float))


@pytest.mark.parametrize(
    ("column", "values", "names", "rows"),
    [
        ("month", [12, 1], ("month=12", "month=1"), [[0, 1], [1, 0]]),
        ("month", ["12", "1.0"], ("month=12", "month=1"), [[0, 1], [1, 0]]),
        ("km", [1, 2.0], ("km=1", "km=2"), [[1, 0], [0, 1]]),
        ("night", [False, True], ("night=0", "night=1"), [[0, 1], [1, 0]]),
        ("night", ["false", "true"], ("night=0", "night=1"), [[0, 1], [1, 0]]),
        ("day", ["2013-01-02", "2013-01-01"], ("day=2013-01-02", "day=2013-01-01"), [[0, 1], [1, 0]]),
        ("plane", ["A320", "secret-d"], ("plane=A320", "plane=secret-d"), [[1, 0], [0, 1]]),
    ],
)
def test_categories_of_many_types(column, values, names, rows):
    assert encode(TABLE, [column], {column: values}) == (names, rows)


def test_a_missing_number_is_not_another_category():
    _, rows = encode({"k": np.array([1.0, np.nan, 5.0])}, None, {"k": [1]}, "k")
    np.testing.assert_array_equal(rows, [[1, 0], [np.nan, np.nan], [0, 1]])


def test_an_untyped_category_is_compared_as_it_was_declared():
    names, rows = encode({"k": [1, 2.0, "2", "x"]}, ["k"], {"k": ["1", "2"]}, "k")
    assert rows == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert names == ("k=1", "k=2", "k=(other)")
    assert encode({"k": [1, 2.0, "2", "x"]}, ["k"], {"k": [1, 2]}, "k") == (names, rows)


def test_too_large_for_float32_is_infinite():
    table = read_table({"x": np.array([1e300, 1.0])})
    X = choose_features(table, None).encode(table.frame.collect(), np.float32)
    assert X.dtype == np.float32
    assert X.tolist() == [[np.inf], [1.0]]


def test_default_features_are_every_column_that_is_not_excluded():
    numbers = TABLE.select("id", "night", "km", "month")
    encoding = choose_features(read_table(numbers), None, exclude=["id"])
    assert encoding.feature_names == ("night", "km", "month")


REFUSED = {
    "unknown": (
        {"features": ["monht"]},
        "no column 'monht'; did you mean 'month'? it has 'id', 'km', 'month'",
    ),
    "unknown category": ({"features": ["km"], "categories": {"carier": ["A"]}}, "did you mean 'carrier'"),
    "nothing alike": ({"features": ["zzzz"]}, "no column 'zzzz'; it has 'id'"),
    "none": ({"features": []}, "no column is left"),
    "twice": ({"features": ["km", "km"]}, "features names 'km' twice"),
    "excluded": ({"features": ["km", "id"], "exclude": ["id"]}, "'id' cannot be a feature"),
    "text": (
        {"features": ["km", "carrier"]},
        "not: 'carrier' (String); declare the categories of a text column",
    ),
    "how": ({"features": ["carrier"]}, 'categories={"carrier": ["A", "B"]}'),
    "categorical": ({"features": ["plane"]}, "'plane' (Categorical)"),
    "date": ({"features": ["day"]}, "'day' (Date)"),
    "nested": ({"features": ["parts"]}, "'parts' (List(Int64))"),
    "by default": (
        {"features": None, "exclude": ["id"]},
        "'carrier' (String), 'plane' (Categorical), 'day' (Date)",
    ),
    "stray categories": ({"features": ["km"], "categories": {"carrier": ["A"]}}, "not among the features"),
    "stray other": ({"features": ["km"], "other": ["km"]}, "for which no categories are declared"),
    "no category": ({"features": ["carrier"], "categories": {"carrier": []}}, "at least one"),
    "same category": ({"features": ["carrier"], "categories": {"carrier": ["A", "A"]}}, "once"),
    "same number": ({"features": ["month"], "categories": {"month": ["1", 1]}}, "once"),
    "number for text": ({"features": ["carrier"], "categories": {"carrier": [1]}}, "is text, but a declared"),
    "text for number": (
        {"features": ["month"], "categories": {"month": ["AA"]}},
        "is numeric, but a declared",
    ),
    "nested category": ({"features": ["parts"], "categories": {"parts": [1]}}, "cannot hold a category"),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_a_schema_refuses(arguments, sentence):
    with pytest.raises(InvalidInputError) as caught:
        choose_features(read_table(TABLE), **arguments)
    message = str(caught.value)
    assert sentence in message
    assert "secret" not in message
    assert "\n" not in message


def test_names_after_encoding_may_not_clash():
    frame = pl.DataFrame({"a": ["x"], "a=x": [1.0]})
    with pytest.raises(InvalidInputError, match="both called 'a=x'"):
        choose_features(read_table(frame), None, {"a": ["x"]})


def test_untyped_columns_have_to_be_named():
    table = read_table({"id": ["secret"], "x": ["secret"], "y": [1.0]})
    with pytest.raises(
        InvalidInputError, match=r"which columns are numbers; name the features among 'x', 'y'$"
    ):
        choose_features(table, None, exclude=["id"])
    with pytest.raises(InvalidInputError, match="each as a number"):
        choose_features(table, ["x"], {"x": [1, "a"]})


def test_long_lists_of_columns_are_cut():
    table = read_table(np.zeros((1, 100)))
    with pytest.raises(InvalidInputError, match=r"'x29', \.\.\. \(100 in all\)$"):
        choose_features(table, ["y"])


def test_declared_numbers_are_found_in_single_precision():
    cells = pl.Series([0.1, 0.2, 0.3], dtype=pl.Float32)
    assert as_codes(cells, (0.1, 0.2)).tolist()[:2] == [0.0, 1.0]
