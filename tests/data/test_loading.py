import numpy as np
import polars as pl
import pytest

from userdp.data import Users, load_flights, load_users, stream_features
from userdp.errors import InvalidInputError

FLIGHTS = load_flights().head(20_000)
FEATURES = ["distance", "carrier", "hour"]
CATEGORIES = {"carrier": ["UA", "B6", "EV"]}


def test_it_agrees_with_users_from_rows():
    table = load_users(FLIGHTS, user="tailnum", features=["distance", "hour"], label="late")
    X = FLIGHTS.select("distance", "hour").to_numpy()
    users = Users.from_rows(X, FLIGHTS["tailnum"])
    assert table.n_users == users.n_users
    np.testing.assert_array_equal(table.users.rows, users.rows)
    np.testing.assert_array_equal(table.users.offsets, users.offsets)
    np.testing.assert_array_equal(
        table.targets, Users.from_rows(FLIGHTS["late"].to_numpy()[:, None], FLIGHTS["tailnum"]).rows[:, 0]
    )


def test_a_user_s_rows_keep_their_order_across_batches(monkeypatch):
    monkeypatch.setattr("userdp.data.loading._ROWS_AT_ONCE", 777)
    numbered = FLIGHTS.with_row_index("row").select("tailnum", "row")
    users = load_users(numbered, user="tailnum").users
    steps = np.diff(users.rows[:, 0])
    steps[users.offsets[1:-1] - 1] = 1
    assert (steps > 0).all()
    tails = FLIGHTS["tailnum"].gather(users.rows[:, 0].astype(int))
    assert tails.is_sorted()
    assert (
        tails.rle_id().to_numpy().tolist()
        == np.repeat(np.arange(users.n_users), users.items_per_user).tolist()
    )


def test_replacing_one_user_changes_only_that_user(monkeypatch):
    """Whatever their cells hold: unparsable text, an unknown category, an undeclared label."""
    monkeypatch.setattr("userdp.data.loading._ROWS_AT_ONCE", 777)
    text = FLIGHTS.select(pl.col("tailnum", *FEATURES, "late").cast(pl.String))
    victim = text["tailnum"][5]
    other = text.with_columns(
        pl.when(tailnum=victim).then(pl.lit("?!")).otherwise(pl.col(*FEATURES, "late")).name.keep()
    )
    roles = {
        "user": "tailnum",
        "features": FEATURES,
        "label": "late",
        "categories": CATEGORIES,
        "other": "carrier",
    }
    before, after = (load_users(frame.to_dict(as_series=False), **roles) for frame in (text, other))
    j = sorted(set(text["tailnum"])).index(victim)
    mine = slice(*before.users.offsets[j : j + 2])
    assert np.isnan(after.users.rows[mine][:, [0, -1]]).all()
    assert np.isnan(after.targets[mine]).all()
    for one, two in ((before.users.rows, after.users.rows), (before.targets, after.targets)):
        np.testing.assert_array_equal(np.delete(one, np.r_[mine], 0), np.delete(two, np.r_[mine], 0))


@pytest.mark.parametrize(
    ("label", "classes", "targets"),
    [
        ([0, 1, 2, None], (0, 1), [0, 1, np.nan, np.nan]),
        ([0, 1, 2, None], (2, 1, 0), [2, 1, 0, np.nan]),
        ([True, False, True, None], (0, 1), [1, 0, 1, np.nan]),
        ([True, False, True, None], (False, True), [1, 0, 1, np.nan]),
        ([1.0, 0.0, 0.5, float("nan")], (0, 1), [1, 0, np.nan, np.nan]),
        (["no", "yes", "No", None], ("no", "yes"), [0, 1, np.nan, np.nan]),
        ([3, 2, 1, None], ["1", "2"], [np.nan, 1, 0, np.nan]),
        ([1.5, float("inf"), float("nan"), None], None, [1.5, np.inf, np.nan, np.nan]),
        ([7, 8, 9, None], None, [7, 8, 9, np.nan]),
    ],
)
def test_labels(label, classes, targets):
    frame = pl.DataFrame({"id": [1, 2, 3, 4], "x": [0.0] * 4, "y": label})
    loaded = load_users(frame, user="id", label="y", classes=classes)
    assert loaded.feature_names == ("x",)
    np.testing.assert_array_equal(loaded.targets, targets)


@pytest.mark.parametrize(
    ("cells", "classes", "targets"),
    [
        (["0", "1", "1.0", "true", "maybe"], (0, 1), [0, 1, 1, 1, np.nan]),
        (["0", "1", "1.0", "true", "maybe"], ("0", "1"), [0, 1, np.nan, np.nan, np.nan]),
        (["0", "1", "1.5", "true", "maybe"], None, [0, 1, 1.5, 1, np.nan]),
    ],
)
def test_labels_in_a_csv_file(cells, classes, targets, tmp_path):
    lines = [f"{k},1,{cell}" for k, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["id,x,y", *lines]))
    loaded = load_users(tmp_path / "t.csv", user="id", features=["x"], label="y", classes=classes)
    np.testing.assert_array_equal(loaded.targets, targets)


def test_csv_ids_are_text(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n10,1\n9,2\n010,3\n10,4\n")
    users = load_users(tmp_path / "t.csv", user="id", features="x").users
    assert users.rows[:, 0].tolist() == [3, 1, 4, 2]
    assert users.items_per_user.tolist() == [1, 2, 1]


def test_an_id_of_python_objects_is_one_user_however_it_is_written():
    users = load_users({"id": [1, 1.0, "1", True, "a"], "x": [1, 2, 3, 4, 5]}, user="id", features="x").users
    assert users.items_per_user.tolist() == [3, 1, 1]


def test_several_user_columns():
    frame = pl.DataFrame({"shop": ["b", "a", "b", "a"], "till": [1, 1, 1, 2], "x": [1.0, 2.0, 3.0, 4.0]})
    loaded = load_users(frame, user=["shop", "till"])
    assert loaded.feature_names == ("x",)
    assert loaded.users.rows[:, 0].tolist() == [2, 4, 1, 3]
    assert loaded.users.offsets.tolist() == [0, 1, 2, 4]


def test_a_lazy_frame_is_computed_once():
    """Two passes over an unordered query could give one user's rows to another."""
    passes = []

    def watch(part):
        passes.append(len(part))
        return part

    frame = FLIGHTS.lazy().map_batches(watch, projection_pushdown=False)
    load_users(frame, user="tailnum", features=["distance"], label="late")
    assert sum(passes) == len(FLIGHTS)


@pytest.mark.parametrize("dtype", [np.float32, "float32", np.dtype("float64"), np.float64])
def test_dtype(dtype):
    rows = load_users(FLIGHTS, user="tailnum", features=["distance"], dtype=dtype).users.rows
    assert rows.dtype == dtype


def test_means_of_float32_rows_are_summed_in_float64():
    users = load_users({"id": np.zeros(10**5), "x": np.full(10**5, 0.1)}, user="id", dtype=np.float32).users
    assert users.means()[0, 0] == pytest.approx(np.float32(0.1), rel=1e-12)


ROLES_REFUSED = {
    "unknown user": ({"user": "tailnumber"}, "did you mean 'tailnum'"),
    "unknown label": ({"label": "lat"}, "did you mean 'late'"),
    "no user": ({"user": []}, "must be different columns"),
    "user twice": ({"user": ["tailnum", "tailnum"]}, "must be different columns"),
    "user is label": ({"label": "tailnum"}, "must be different columns"),
    "label is feature": ({"label": "late", "features": ["late"]}, "'late' cannot be a feature"),
    "user is feature": ({"features": ["tailnum"]}, "'tailnum' cannot be a feature"),
    "text label": ({"label": "carrier"}, "column 'carrier' is text, but a declared class is a number"),
    "text target": ({"label": "carrier", "classes": None}, "label 'carrier' (Categorical) is not a number"),
    "one class": ({"label": "late", "classes": [1]}, "at least two classes"),
    "same class": ({"label": "late", "classes": [1, True]}, "each class of 'late' once"),
    "classes of text": ({"label": "late", "classes": ["no", "yes"]}, "a declared class is not a number"),
    "number as user": ({"user": 0}, "expected a column's name"),
    "numbers as users": ({"user": [0]}, "expected a column's name"),
    "no features": ({"features": 3}, "expected a column's name"),
    "list as label": ({"label": ["late"]}, "label must be the name of one column"),
    "one number as classes": ({"label": "late", "classes": 1}, "classes must be a list"),
    "list as categories": ({"categories": ["carrier"]}, "categories must be a mapping"),
    "number as categories": ({"categories": {"distance": 3}}, "categories must be a mapping"),
    "dtype": ({"dtype": np.int32}, "dtype must be float64 or float32"),
    "dtype name": ({"dtype": "banana"}, "dtype must be float64 or float32"),
}


@pytest.mark.parametrize(("arguments", "sentence"), ROLES_REFUSED.values(), ids=ROLES_REFUSED)
def test_roles_that_are_refused(arguments, sentence):
    with pytest.raises(InvalidInputError) as caught:
        load_users(FLIGHTS, **{"user": "tailnum", "features": ["distance"]} | arguments)
    assert sentence in str(caught.value)
    assert not any(tail in str(caught.value) for tail in FLIGHTS["tailnum"].unique())


@pytest.mark.parametrize(("user", "named"), [("a", "'a'"), (["b", "a"], "'b', 'a'")])
def test_null_ids_are_refused(user, named):
    frame = pl.DataFrame({"a": ["secret", None], "b": ["secret", "secret"], "x": [1.0, 2.0]})
    with pytest.raises(InvalidInputError, match=f"^user column {named} has null ids") as caught:
        load_users(frame, user=user, features=["x"])
    assert "secret" not in str(caught.value)


def test_a_table_shows_no_rows():
    assert repr(load_users(FLIGHTS, user="tailnum", features=["hour"])) == (
        f"UserTable(n_users={FLIGHTS['tailnum'].n_unique()}, feature_names=('hour',))"
    )


@pytest.mark.parametrize("size", [1, 7, 999, 1_000, 2**16])
def test_a_stream_holds_the_same_rows(size):
    whole = FLIGHTS[:1_000]
    batches = list(
        stream_features(whole, features=FEATURES, categories=CATEGORIES, keep="tailnum", size=size)
    )
    assert max(len(X) for _, X in batches) == min(size, 1_000)
    kept, X = pl.concat(kept for kept, _ in batches), np.concatenate([X for _, X in batches])
    assert kept["tailnum"].equals(whole["tailnum"])
    np.testing.assert_array_equal(X[:, 0], whole["distance"])
    np.testing.assert_array_equal(X[:, 2] == 1, whole["carrier"] == "B6")
    undeclared = ~whole["carrier"].is_in(CATEGORIES["carrier"])
    np.testing.assert_array_equal(np.isnan(X[:, 1:4]).all(axis=1), undeclared)


def test_a_stream_can_be_left_early(tmp_path):
    FLIGHTS.write_parquet(tmp_path / "flights.parquet")
    for kept, X in stream_features(
        tmp_path / "flights.parquet", features="hour", keep=FLIGHTS.columns, size=100
    ):
        assert kept.equals(FLIGHTS[:100])
        assert X.shape == (100, 1)
        break


def test_a_stream_s_arguments_are_checked_before_it_starts(tmp_path):
    with pytest.raises(InvalidInputError, match="no column 'hou'"):
        stream_features(FLIGHTS, features=["hou"])
    with pytest.raises(InvalidInputError, match="no column 'tail'"):
        stream_features(FLIGHTS, features=["hour"], keep=["tail"])
    with pytest.raises(InvalidInputError, match="size must be a whole number, at least 1, got 0"):
        stream_features(FLIGHTS, features=["hour"], size=0)
    for size in ("3", 2.5, None):
        with pytest.raises(InvalidInputError, match="a whole number, at least 1, got"):
            stream_features(FLIGHTS, features=["hour"], size=size)
    with pytest.raises(InvalidInputError, match="categories must be a mapping"):
        stream_features(FLIGHTS, features=["hour"], categories=["hour"])
    with pytest.raises(InvalidInputError, match="keep names 'tailnum' twice"):
        stream_features(FLIGHTS, features=["hour"], keep=["tailnum", "late", "tailnum"])
    numbers = FLIGHTS.select("tailnum", "hour", "distance")
    ((_, X),) = stream_features(numbers, keep="tailnum", dtype="float32")
    assert X.shape == (len(FLIGHTS), 2)
    assert X.dtype == np.float32
