"""Every source of one table gives the same users; every bad source gives one sentence without cells."""

import gzip
import io
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from userdp.data import load_users, read_table
from userdp.errors import InvalidInputError

TABLE = pl.DataFrame(
    {
        "who": ["u3", "u1", "u2", "u1", "u3", "u1"],
        "age": pl.Series([30, 11, 21, 12, 31, 13], dtype=pl.Int32),
        "size": pl.Series([3.5, 1.25, 2.0, 1.5, None, 1.75], dtype=pl.Float32),
        "member": [True, False, True, True, False, False],
        "carrier": ["AA", "UA", "UA", "AA", "UA", "AA"],
        "bought": [1, 0, 1, 1, 0, 0],
    }
)
ROLES = {
    "user": "who",
    "features": ["age", "size", "member", "carrier"],
    "label": "bought",
    "categories": {"carrier": ["UA", "AA"]},
}


class OnlyArrow:
    """An Arrow table from some other library."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def pandas_frame():
    return pd.DataFrame(TABLE.to_dict(as_series=False))


def parquet_file(folder):
    TABLE.write_parquet(folder / "table.parquet")
    return folder / "table.parquet"


def parquet_folder(folder):
    TABLE[:2].write_parquet(folder / "part-0.parquet")
    TABLE[2:].write_parquet(folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def parquet_glob(folder):
    return str(parquet_folder(folder) / "part-*.parquet")


def csv_file(folder):
    TABLE.write_csv(folder / "table.csv")
    return str(folder / "table.csv")


def csv_gz_file(folder):
    (folder / "table.CSV.gz").write_bytes(gzip.compress(TABLE.write_csv().encode()))
    return folder / "table.CSV.gz"


def csv_with_blank_lines(folder):
    lines = TABLE.write_csv(line_terminator="\r\n").split("\r\n")
    (folder / "table.csv").write_text("\ufeff" + "\r\n\r\n".join(lines) + "\r\n\r\n", encoding="utf-8")
    return folder / "table.csv"


SOURCES = {
    "parquet": parquet_file,
    "parquet folder": parquet_folder,
    "parquet glob": parquet_glob,
    "csv": csv_file,
    "csv.gz": csv_gz_file,
    "csv with blank lines": csv_with_blank_lines,
    "polars": lambda _: TABLE,
    "polars lazy": lambda _: TABLE.lazy(),
    "polars categories": lambda _: TABLE.with_columns(pl.col("who", "carrier").cast(pl.Categorical)),
    "polars decimals": lambda _: TABLE.with_columns(pl.col("age").cast(pl.Decimal(10, 2))),
    "pandas": lambda _: pandas_frame(),
    "pandas nullable": lambda _: pandas_frame().convert_dtypes(dtype_backend="numpy_nullable"),
    "pandas on arrow": lambda _: pandas_frame().convert_dtypes(dtype_backend="pyarrow"),
    "pandas objects": lambda _: pandas_frame().astype(object),
    "pandas categories": lambda _: pandas_frame().astype({"who": "category", "carrier": "category"}),
    "arrow": lambda _: TABLE.to_arrow(),
    "arrow reader": lambda _: TABLE.to_arrow().to_reader(),
    "arrow of another library": lambda _: OnlyArrow(TABLE.to_arrow()),
    "dict of lists": lambda _: TABLE.to_dict(as_series=False),
    "dict of columns": lambda _: {
        "who": TABLE["who"].to_list(),
        "age": TABLE["age"].to_numpy(),
        "size": TABLE["size"],
        "member": pd.Series(TABLE["member"].to_list()),
        "carrier": np.array(TABLE["carrier"].to_list()),
        "bought": tuple(TABLE["bought"]),
    },
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_every_source_gives_the_same_users(make, tmp_path):
    table = load_users(make(tmp_path), **ROLES)
    nan = np.nan
    assert table.feature_names == ("age", "size", "member", "carrier=UA", "carrier=AA")
    assert table.users.offsets.tolist() == [0, 3, 4, 6]
    expected = [
        [11, 1.25, 0, 1, 0],
        [12, 1.5, 1, 0, 1],
        [13, 1.75, 0, 0, 1],
        [21, 2.0, 1, 1, 0],
        [30, 3.5, 1, 0, 1],
        [31, nan, 0, 1, 0],
    ]
    np.testing.assert_array_equal(table.users.rows, expected)
    np.testing.assert_array_equal(table.targets, [0, 1, 0, 1, 1, 0])
    assert np.isnan(table.users.means()[2]).all()


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.float16, np.longdouble, object, str])
def test_an_array_s_columns_are_called_x0_x1(kind):
    array = np.array([[7, 1], [3, 2], [7, 3]]).astype(kind)
    table = load_users(array, user="x0", features=["x1"])
    assert table.feature_names == ("x1",)
    assert table.users.rows.tolist() == [[2], [1], [3]]


def test_a_table_may_be_read_twice():
    table = read_table(TABLE)
    assert read_table(table) is table
    assert load_users(table, **ROLES).n_users == load_users(table, **ROLES).n_users == 3


def test_times_become_columns_too():
    times = np.array(["2020-01-01", "NaT"], dtype="datetime64[s]")
    zoned = pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])).dt.tz_localize("UTC")
    table = read_table({"at": times, "zoned": zoned})
    assert [table.kind(name) for name in table.schema] == ["other", "text"]


def refused(call, *cells):
    """Return the one sentence, after checking that it holds no cell."""
    with pytest.raises(InvalidInputError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not [cell for cell in cells if cell in message]
    return message


def write(folder, name, data):
    (folder / name).write_bytes(data)
    return folder / name


def parquet_bytes(rows=50_000):
    file = io.BytesIO()
    ages = np.random.default_rng(0).normal(size=rows)
    pl.DataFrame({"who": ["secret"] * rows, "age": ages}).write_parquet(file)
    return file.getvalue()


def damaged_parquet():
    data = bytearray(parquet_bytes())
    data[2_000:200_000] = b"\x07" * 198_000
    return bytes(data)


BAD_FILES = {
    "empty csv": ("t.csv", b"", "is empty"),
    "empty parquet": ("t.parquet", b"", "is empty"),
    "header only": ("t.csv", b"who,age\n", "has no rows"),
    "parquet without rows": ("t.parquet", parquet_bytes(0), "has no rows"),
    "truncated parquet": ("t.parquet", parquet_bytes()[:100_000], "damaged, cut short"),
    "damaged parquet": ("t.parquet", damaged_parquet(), "damaged, cut short"),
    "text called parquet": ("t.parquet", b"who,age\nsecret,1\n" * 9, "damaged, cut short"),
    "truncated gzip": ("t.csv.gz", gzip.compress(b"who,age\n" + b"secret,1\n" * 9999)[:60], "not cut short"),
    "latin-1 cell": ("t.csv", "who,age\nsecrét,1\n".encode("latin-1"), "not UTF-8"),
    "latin-1 header": ("t.csv", "who,âge\nsecret,1\n".encode("latin-1"), "not UTF-8"),
    "utf-16": ("t.csv", "who,age\nsecret,1\n".encode("utf-16"), "UTF-8"),
    "long line": ("t.csv", b"who,age\nsecret,1\nsecret,1,secret\n", "more cells than its header"),
    "open quote": ("t.csv", b'who,age\nsecret,1\nsecret,"1\nsecret,4\n', "quotes closed"),
    "excel": ("t.xlsx", b"PK", "unknown kind; expected one of .parquet"),
    "no suffix": ("t", b"who,age\nsecret,1\n", "unknown kind"),
}


@pytest.mark.parametrize(("name", "data", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(name, data, sentence, tmp_path):
    path = write(tmp_path, name, data)
    message = refused(lambda: load_users(path, user="who", features=["age"]), "secr", "secret")
    assert sentence in message
    assert name in message


def test_missing_files_and_folders(tmp_path):
    assert "there is no file" in refused(lambda: read_table(tmp_path / "none.csv"))
    assert "folder without parquet" in refused(lambda: read_table(tmp_path))
    assert "no file matches" in refused(lambda: read_table(str(tmp_path / "*.parquet")))
    write(tmp_path, "a.csv", b"who\n1\n")
    write(tmp_path, "b.csv", b"who\n1\n")
    assert "parquet files only" in refused(lambda: read_table(str(tmp_path / "*.csv")))


def test_a_file_may_be_called_like_a_pattern(tmp_path):
    write(tmp_path, "a.csv", b"who,age\nx,1\n")
    path = write(tmp_path, "[a].csv", b"who,age\nx,2\n")
    assert load_users(path, user="who", features=["age"]).users.rows.tolist() == [[2]]


@pytest.mark.parametrize(
    "second", [{"who": [1], "age": [1.0]}, {"who": ["a"]}, {"who": ["a"], "age": [1.0], "b": [1]}]
)
def test_files_whose_columns_differ(second, tmp_path):
    pl.DataFrame({"who": ["secret"], "age": [1.0]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame(second).write_parquet(tmp_path / "b.parquet")
    message = refused(lambda: load_users(tmp_path, user="who", features=["age"]), "secret")
    assert "columns differ" in message


def test_short_lines_are_rows_with_empty_cells(tmp_path):
    path = write(tmp_path, "t.csv", b"who,age\na,1\nb\n")
    rows = load_users(path, user="who", features=["age"]).users.rows
    np.testing.assert_array_equal(rows, [[1], [np.nan]])


def test_a_lazy_frame_that_fails_shows_no_cell():
    frame = pl.LazyFrame({"who": ["a"], "age": ["secret"]}).with_columns(pl.col("age").cast(pl.Float64))
    message = refused(lambda: load_users(frame, user="who"), "secret")
    assert "could not be computed (InvalidOperationError); collect it" in message


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (object(), "cannot read a table from object; pass a path"),
        (None, "cannot read a table from NoneType"),
        (np.zeros(3), r"must have shape \(n_rows, n_columns\), got shape \(3,\)"),
        ({"a": [1, 2], "b": [1]}, "columns differ in length"),
        ({"a": np.zeros((2, 2))}, "column 'a' must have one value per row"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns named 'a'"),
        (pa.array([1, 2]), "cannot read a table from Int64Array|does not hold a table"),
    ],
)
def test_things_that_are_no_table(source, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        read_table(source)


def test_polars_pandas_and_arrow_are_not_imported_by_the_readers():
    script = (
        "import sys\n"
        "import userdp.data\n"
        "assert 'polars' not in sys.modules\n"
        "userdp.data.load_users({'who': [1], 'x': [2.0]}, user='who', features='x')\n"
        "assert not {'pandas', 'pyarrow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
