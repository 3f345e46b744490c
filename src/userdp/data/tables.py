"""One kind of table for every source: columns with names, read in batches of rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from userdp.data import files, frames
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

Kind: TypeAlias = Literal["number", "text", "untyped", "other"]

_COLUMNS_SHOWN = 30


@dataclass(frozen=True)
class Table:
    """A table that has not been read yet.

    Attributes
    ----------
    frame : polars.LazyFrame
        Its rows.
    untyped : frozenset of str
        Columns of text whose role decides what they are: every column of a CSV file, and Python objects.
    name : str
        What errors call it.
    format : str
        ``"parquet"``, ``"csv"`` or ``"frame"``.
    """

    frame: "pl.LazyFrame"
    untyped: frozenset[str]
    name: str
    format: str

    @cached_property
    def schema(self) -> "dict[str, pl.DataType]":
        """The columns' names and types."""
        with self._reading():
            schema = dict(self.frame.collect_schema())
        if self.format == "csv" and any("\N{REPLACEMENT CHARACTER}" in name for name in schema):
            raise InvalidInputError(f"{self.name} is not UTF-8 text; save it as UTF-8")
        return schema

    def kind(self, column: str) -> Kind:
        """Tell what a column's type allows: a schema's answer, not the cells'."""
        import polars as pl

        dtype = self.schema[column]
        if column in self.untyped:
            return "untyped"
        if dtype.is_numeric() or dtype == pl.Boolean:
            return "number"
        if dtype in (pl.String, pl.Categorical, pl.Enum, pl.Date):
            return "text"
        return "other"

    def is_boolean(self, column: str) -> bool:
        """Tell whether a column's type has two values."""
        import polars as pl

        return self.schema[column] == pl.Boolean

    def fits_float32(self, column: str) -> bool:
        """Tell whether every number of a column's type is one of float32."""
        import polars as pl

        small = (pl.Boolean, pl.Float32, pl.Int8, pl.Int16, pl.UInt8, pl.UInt16)
        return self.schema[column] in small

    def require(self, columns: Sequence[str]) -> None:
        """Refuse columns that the table does not have, and name those that come close."""
        unknown = [name for name in columns if name not in self.schema]
        if not unknown:
            return
        close = {match for name in unknown for match in get_close_matches(str(name), self.schema, n=1)}
        hint = f"did you mean {quoted(sorted(close))}? " if close else ""
        raise InvalidInputError(
            f"{self.name} has no column {quoted(unknown)}; {hint}it has {quoted(list(self.schema))}"
        )

    def batches(self, columns: Sequence[str], size: int) -> "Iterator[pl.DataFrame]":
        """Read some columns once, in order, at most ``size`` rows at a time."""
        self.require(columns)
        chosen = self.frame.select(list(dict.fromkeys(columns)))
        with self._reading():
            yield from chosen.collect_batches(chunk_size=size, maintain_order=True)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Replace what polars says of bad data, which may hold cells."""
        import polars as pl

        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            if self.format != "frame":
                raise files.unreadable(self.name, self.format, error) from None
            problem = f"could not be computed ({type(error).__name__}); collect it to see why"
            raise InvalidInputError(f"{self.name} {problem}") from None


def read_table(source: Any) -> Table:
    """Open a table, whatever it comes as.

    Parameters
    ----------
    source : path, data frame, Arrow table, array or dict
        A parquet file (``.parquet``, ``.pq``), a CSV file (``.csv``, ``.csv.gz``: UTF-8, commas, a header), a
        folder or glob of parquet files; a pandas or polars data frame, lazy or not; anything with an Arrow C
        stream; a NumPy array of shape (n_rows, n_columns), whose columns are called x0, x1, ...; a dict of
        columns.

    Raises
    ------
    InvalidInputError
        In one sentence, for whatever cannot be read. It never holds a cell.

    Examples
    --------
    >>> import numpy as np
    >>> list(read_table(np.zeros((3, 2))).schema)
    ['x0', 'x1']
    """
    import polars as pl

    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        frame, format = files.scan(source)
        table = Table(frame, frozenset(), str(source), format)
        columns = frozenset(table.schema)
        return replace(table, untyped=columns) if format == "csv" else table
    if isinstance(source, pl.LazyFrame):
        return Table(source, frozenset(), "the lazy frame", "frame")
    if isinstance(source, pl.DataFrame):
        return Table(source.lazy(), frozenset(), "the table", "frame")
    data, untyped = frames.convert(source)
    return Table(data.lazy(), untyped, "the table", "frame")


def as_names(columns: str | Sequence[str]) -> list[str]:
    """Return a list of column names; a single one may stand for itself."""
    if isinstance(columns, str):
        return [columns]
    try:
        names: list[Any] | None = list(columns)
    except TypeError:
        names = None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(
            f"expected a column's name or a list of names, got {type(columns).__name__}; names are text, and the "
            "columns of an array are called 'x0', 'x1', ..."
        )
    return names


def quoted(names: Sequence[object]) -> str:
    """Write a list of names for an error, not too long."""
    shown = ", ".join(repr(name) for name in names[:_COLUMNS_SHOWN])
    return shown if len(names) <= _COLUMNS_SHOWN else f"{shown}, ... ({len(names)} in all)"
