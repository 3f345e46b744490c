"""Files of rows as lazy frames, and a sentence for each way a file can be bad.

A sentence names the file, never a line or a cell: those are private.
"""

from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv"}


def scan(source: str | Path) -> "tuple[pl.LazyFrame, str]":
    """Open a file, a folder of parquet files or a glob; return its rows and its format.

    Nothing but the schema is read yet. Every column of a CSV file is text.
    """
    paths = _paths(source)
    formats = {_format(path) for path in paths}
    if len(paths) > 1 and formats != {"parquet"}:
        raise InvalidInputError(f"{source} must match parquet files only; read other files one at a time")
    for path in paths:
        if path.stat().st_size == 0:
            raise InvalidInputError(f"{path} is empty")
    (format,) = formats
    return (_scan_parquet(paths) if format == "parquet" else _scan_csv(paths[0])), format


def parquet_files(source: str | Path) -> list[Path]:
    """Return the parquet files that a path means; none for what cannot be opened or is of another format."""
    try:
        paths = _paths(source)
        return paths if {_format(path) for path in paths} == {"parquet"} else []
    except InvalidInputError:
        return []


def unreadable(name: str, format: str, error: BaseException) -> InvalidInputError:
    """Say in one sentence what is wrong with a file; the reader's own words may hold cells."""
    import polars as pl

    words = str(error).lower()
    if isinstance(error, PermissionError):
        problem = "cannot be opened: permission denied"
    elif format == "csv" and "more fields" in words:
        problem = "has lines with more cells than its header has names; quote cells that contain commas"
    elif format == "csv" and ("utf-8" in words or "utf8" in words):
        problem = "is not UTF-8 text; save it as UTF-8"
    elif format == "csv":
        problem = (
            "cannot be read as CSV: expected a header and comma-separated lines, quotes closed, not cut short"
        )
    elif isinstance(error, pl.exceptions.SchemaError | pl.exceptions.ColumnNotFoundError):
        problem = "has files whose columns differ; write them with one schema"
    else:
        problem = "cannot be read as parquet: it is damaged, cut short or something else"
    return InvalidInputError(f"{name} {problem}")


def _paths(source: str | Path) -> list[Path]:
    path = Path(source).expanduser()
    if path.is_dir():
        paths = sorted(path.rglob("*.parquet"))
        if not paths:
            raise InvalidInputError(f"{source} is a folder without parquet files (*.parquet)")
        return paths
    if path.exists():
        return [path]
    if any(sign in str(path) for sign in "*?["):
        paths = [Path(match) for match in sorted(glob(str(path), recursive=True))]
        if not paths:
            raise InvalidInputError(f"no file matches {source}")
        return paths
    raise InvalidInputError(f"there is no file {source}")


def _format(path: Path) -> str:
    for suffix, format in _SUFFIXES.items():
        if path.name.lower().endswith(suffix):
            return format
    raise InvalidInputError(f"{path} is of an unknown kind; expected one of {', '.join(_SUFFIXES)}")


def _scan_parquet(paths: list[Path]) -> "pl.LazyFrame":
    import polars as pl

    return pl.scan_parquet(paths, glob=False, hive_partitioning=False)


def _scan_csv(path: Path) -> "pl.LazyFrame":
    import polars as pl

    # Types read off the cells would let one user's cell change the schema, hence text everywhere.
    frame = pl.scan_csv(path, glob=False, infer_schema=False)
    blank_line = pl.all_horizontal(pl.all().is_null())
    return frame.filter(~blank_line)
