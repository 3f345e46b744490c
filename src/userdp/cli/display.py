"""What people see: results on stdout, progress and one-line remarks on stderr, or JSON for machines."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from userdp.cli import interrupts
from userdp.errors import PrivacyWarning

Advance: TypeAlias = Callable[[int], None]

_COLOURS = {"error": "bold red", "warning": "yellow"}


@dataclass(frozen=True)
class Display:
    """Where a command speaks.

    Attributes
    ----------
    as_json : bool
        One JSON object on stdout instead of words and tables.
    quiet : bool
        No words, no progress.
    """

    as_json: bool
    quiet: bool

    def show(self, *things: RenderableType) -> None:
        """Print words and tables; nothing under ``--json`` and ``--quiet``."""
        if not (self.as_json or self.quiet):
            console = Console(highlight=False)
            for thing in things:
                console.print(thing, soft_wrap=isinstance(thing, str) and not console.is_terminal)

    def answer(self, record: dict[str, Any], *things: RenderableType) -> None:
        """Print a command's result: the record under ``--json``, else the words and tables."""
        if self.as_json:
            print(json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False))
        self.show(*things)

    @contextmanager
    def stage(self, description: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
        """Show a bar on stderr while a stage runs; without a total, a bar that only moves.

        Nothing shows where stderr is not a terminal.
        """
        console = Console(stderr=True)
        hidden = self.quiet or self.as_json or not console.is_terminal
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24))
        counts = TextColumn("{task.completed:,} " + unit) if unit else TaskProgressColumn()
        last = (counts,) if unit or total is not None else ()
        with Progress(
            *columns, *last, TimeElapsedColumn(), console=console, transient=True, disable=hidden
        ) as progress:
            task = progress.add_task(description, total=total)
            yield lambda steps: progress.advance(task, steps)
        interrupts.check()


def print_line(kind: str, message: str) -> None:
    """Write one line to stderr, however long, in colour on a terminal."""
    console = Console(stderr=True, highlight=False, markup=False)
    console.print(f"{kind}:", style=_COLOURS[kind], end=" ")
    console.print(" ".join(message.split()), soft_wrap=True)
    sys.stderr.flush()


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each privacy warning once as a line instead of as a Python warning."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, PrivacyWarning):
            show_as_before(message, category, *place, **more)
        elif str(message) not in seen:
            seen.add(str(message))
            print_line("warning", str(message))

    with warnings.catch_warnings():
        show_as_before = warnings.showwarning
        warnings.simplefilter("always", PrivacyWarning)
        warnings.showwarning = show
        yield
