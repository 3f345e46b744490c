import datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdp.data.grouping import group_rows
from userdp.errors import InvalidInputError


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=50))
def test_it_equals_a_stable_sort(ids):
    order, offsets = group_rows(ids, len(ids))
    assert order.tolist() == np.argsort(ids, kind="stable").tolist()
    assert np.diff(offsets).tolist() == np.unique(ids, return_counts=True)[1].tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y"])), min_size=1, max_size=50))
def test_several_columns_and_structs_are_one_id(pairs):
    numbers, letters = (list(part) for part in zip(*pairs, strict=True))
    frame = pl.DataFrame({"row": numbers, "letter": letters})
    expected = sorted(range(len(pairs)), key=lambda row: pairs[row])
    for groups in (frame, frame.to_struct("both"), frame.select(both=pl.struct(pl.all()))):
        order, offsets = group_rows(groups, len(pairs))
        assert order.tolist() == expected
        assert len(offsets) == len(set(pairs)) + 1


@pytest.mark.parametrize(
    "ids",
    [
        [b"b", b"a", b"b"],
        [datetime.datetime(2021, 1, 1), datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)],
        [datetime.timedelta(2), datetime.timedelta(1), datetime.timedelta(2)],
        [datetime.time(2), datetime.time(1), datetime.time(2)],
        [Decimal("1.5"), Decimal("0.5"), Decimal("1.5")],
        [0.5, -0.0, 0.5],
        pl.Series(["b", "a", "b"], dtype=pl.Categorical),
        pl.Series(["b", "a", "b"], dtype=pl.Enum(["a", "b"])),
        pl.Series([2**100, 1, 2**100], dtype=pl.Int128),
    ],
)
def test_users_come_in_the_order_of_their_ids(ids):
    order, offsets = group_rows(ids, 3)
    assert order.tolist() == [1, 0, 2]
    assert offsets.tolist() == [0, 1, 3]


def test_both_zeros_are_one_user():
    assert len(group_rows([0.0, -0.0, 1.0], 3).offsets) == 3


def test_large_ids_stay_apart():
    assert len(group_rows([2**53, 2**53 + 1], 2).offsets) == 3


@pytest.mark.parametrize(
    "ids",
    [
        pl.DataFrame({"a": [1, 2], "b": ["x", None]}),
        pl.DataFrame({"a": [1, 2], "b": [0.0, float("nan")]}),
        pl.Series([{"a": 1, "b": "x"}, {"a": 1, "b": None}]),
        pl.Series([{"a": {"b": 1}}, {"a": {"b": None}}]),
        pl.Series([{"a": 1}, None]),
        pl.Series([None, None]),
    ],
)
def test_a_null_anywhere_in_an_id_is_refused(ids):
    with pytest.raises(InvalidInputError, match=r"^groups has null ids"):
        group_rows(ids, 2)


@pytest.mark.parametrize(
    "ids", [pl.Series([[1], [2]]), pl.Series([object(), object()]), 7, [object(), object()]]
)
def test_what_is_no_id(ids):
    with pytest.raises(InvalidInputError, match=r"^groups must be one plain id"):
        group_rows(ids, 2)


def test_shapes():
    with pytest.raises(InvalidInputError, match="2 rows, 3 ids"):
        group_rows([1, 2, 3], 2)
    with pytest.raises(InvalidInputError, match="user column 'id' is missing"):
        group_rows(None, 2, "user column 'id'")
