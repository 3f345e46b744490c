"""Tables on the command line: rehearsed before they are opened, and watched while they are read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from userdp.cli.display import Advance, Display
from userdp.cli.rehearsal import rehearse
from userdp.data import Table, read_table

if TYPE_CHECKING:
    import polars as pl


def open_table(source: Path, columns: Sequence[str] | None = None) -> Table:
    """Open a table whose files may be damaged; ``columns`` are those that will be read, if that is known."""
    rehearse(source, columns)
    return read_table(source)


@dataclass(frozen=True)
class WatchedTable(Table):
    """A table that tells somebody how many rows were read."""

    advance: Advance

    def batches(self, columns: Sequence[str], size: int) -> "Iterator[pl.DataFrame]":
        """Read some columns once, in order, at most ``size`` rows at a time."""
        for frame in super().batches(columns, size):
            yield frame
            self.advance(len(frame))


@contextmanager
def reading(table: Table, display: Display, times: int = 1) -> Iterator[WatchedTable]:
    """Show a bar while a table is read, once or several times."""
    n_rows = _rows_if_known(table)
    total = None if n_rows is None else times * n_rows
    with display.stage(f"Reading {escape(table.name)}", total, unit="rows") as advance:
        yield WatchedTable(table.frame, table.untyped, table.name, table.format, advance)


def _rows_if_known(table: Table) -> int | None:
    """Return the number of rows where the file's footer or the memory holds it."""
    import polars as pl

    if table.format == "csv":
        return None
    try:
        return int(table.frame.select(pl.len()).collect().item())
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ):  # whoever reads the rows finds out, and says it better
        return None
