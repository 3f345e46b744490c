import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdp.data import Users, load_flights
from userdp.errors import InvalidInputError


def table(seed=0, rows=3_000, users=200, d=3):
    rng = np.random.default_rng(seed)
    return rng.lognormal(0, 3, size=(rows, d)), rng.integers(0, users, rows)


def test_a_user_s_mean_is_bit_for_bit_a_function_of_that_user():
    """Alone, in any batch, in any order of the users."""
    X, ids = table()
    together = Users.from_rows(X, ids).means()
    present = np.unique(ids)
    for k, user in enumerate(present[:50]):
        alone = Users.from_rows(X[ids == user], ids[ids == user]).means()[0]
        assert alone.tobytes() == together[k].tobytes()
    some = np.isin(ids, present[::3])
    batch = Users.from_rows(X[some], ids[some]).means()
    assert batch.tobytes() == together[::3].tobytes()
    renamed = np.random.default_rng(1).permutation(10_000)[: ids.max() + 1]
    shuffled = Users.from_rows(X, renamed[ids]).means()
    assert shuffled[np.argsort(np.argsort(renamed[present]))].tobytes() == together.tobytes()


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-1e6, 1e6)), min_size=1, max_size=40))
def test_means_equal_the_loop(rows):
    ids, values = map(list, zip(*rows, strict=True))
    means = Users.from_rows(np.array(values)[:, None], ids).means()[:, 0]
    expected = [np.mean([v for i, v in rows if i == user]) for user in sorted(set(ids))]
    assert means == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.7e308])
def test_one_bad_value_makes_one_user_null(bad):
    means = Users.from_rows([[1.0], [bad], [bad], [3.0]], groups=["a", "b", "b", "c"]).means()
    assert means[[0, 2], 0].tolist() == [1.0, 3.0]
    assert np.isnan(means[1]).all()


def test_min_items():
    users = Users.from_rows([[1.0], [1.0], [5.0]], groups=[7, 7, 8])
    assert users.items_per_user.tolist() == [2, 1]
    assert np.isnan(users.means(min_items=2)[1]).all()
    with pytest.raises(InvalidInputError, match="min_items"):
        users.means(min_items=0)


@pytest.mark.parametrize(
    "ids",
    [
        ["x", "y", "x"],
        np.array(["x", "y", "x"]),
        np.array(["x", "y", "x"], dtype=object),
        [1, 2, 1],
        np.array([1, 2, 1], dtype=np.uint8),
        [1.5, 2.5, 1.5],
        [True, False, True],
        [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), datetime.date(2020, 1, 1)],
        pl.Series(["x", "y", "x"]),
        pl.Series(["x", "y", "x"], dtype=pl.Categorical),
        pl.Series([1, 2, 1]),
    ],
)
def test_ids_of_many_types(ids):
    users = Users.from_rows([[1.0], [10.0], [3.0]], groups=ids)
    assert sorted(users.means()[:, 0]) == [2.0, 10.0]


@pytest.mark.parametrize("ids", [["x", None, "x"], [1.0, float("nan"), 2.0], pl.Series([1, None, 2])])
def test_null_ids_are_refused(ids):
    with pytest.raises(InvalidInputError, match="null ids"):
        Users.from_rows([[1.0], [10.0], [3.0]], groups=ids)


def test_nested_ids_are_refused():
    with pytest.raises(InvalidInputError, match="groups must"):
        Users.from_rows([[1.0], [10.0]], groups=[[1, 2], [3, 4]])


def test_flights():
    flights = load_flights()
    assert flights["tailnum"].n_unique() == 4_037
    assert flights.null_count().sum_horizontal().item() == 0
    assert flights["late"].mean() == pytest.approx(0.237, abs=0.001)


@pytest.mark.parametrize("y", [[1.0, "x"], [1.0, None], [1.0, [2, 3]], (1.0, {})])
def test_a_target_that_is_no_number_makes_its_user_null(y):
    users = Users.from_rows([[1.0], [2.0]], ["a", "b"], y)
    assert users.usable().tolist() == [True, False]
