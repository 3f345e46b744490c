"""Tables that report how far they are read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape

from userdp.cli.display import Advance, Display
from userdp.data import Table

if TYPE_CHECKING:
    import polars as pl


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
def reading(table: Table, display: Display) -> Iterator[WatchedTable]:
    """Show a bar while a table is read."""
    with display.stage(f"Reading {escape(table.name)}", _rows_if_known(table), unit="rows") as advance:
        yield WatchedTable(table.frame, table.untyped, table.name, table.format, advance)


def _rows_if_known(table: Table) -> int | None:
    """Return the number of rows where the file's footer or the memory holds it."""
    import polars as pl

    if table.format == "csv":
        return None
    try:
        return int(table.frame.select(pl.len()).collect().item())
    except pl.exceptions.PolarsError:  # whoever reads the rows finds out, and says it better
        return None
