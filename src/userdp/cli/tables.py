"""Releases as tables for the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from userdp.arrays import FloatArray
from userdp.cli.reports import effects
from userdp.privacy.statement import PrivacyStatement
from userdp.report.numbers import measured

if TYPE_CHECKING:
    from userdp.estimators.linear_model import LinearModel

_ROWS = 12


def plain_table(*headings: str) -> Table:
    """Return an empty table; the first column is for names, the others for numbers."""
    table = Table()
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", overflow="fold")
    return table


def bold(path: Path) -> str:
    """Mark a path up, whatever signs it holds."""
    return f"[bold]{escape(str(path))}[/bold]"


def titled(title: str, table: Table) -> Group:
    """Put a line above a table; a title of its own would wrap at the table's width."""
    return Group(Text(title, style="bold"), table)


def effects_table(model: "LinearModel", statement: PrivacyStatement) -> Group:
    """Show the largest effects of a model's features, each with its noise."""
    found = effects(model)
    largest = sorted(found, key=lambda effect: -abs(effect.value))[:_ROWS]
    table = plain_table("feature", "effect of one spread", "noise (std)")
    for effect in largest:
        table.add_row(escape(effect.name), measured(effect.value, effect.noise_std), _noise(effect.noise_std))
    shown = f": {len(largest)} largest effects of {len(found)}" if len(found) > len(largest) else ""
    return titled(f"{model.kind} of {statement.n_users:,} users{shown}", table)


def means_table(title: str, columns: tuple[str, ...], value: FloatArray, noise_std: FloatArray) -> Group:
    """Show means, each with its noise."""
    table = plain_table("column", "private mean", "noise (std)")
    for name, mean, std in zip(columns, value.tolist(), noise_std.tolist(), strict=True):
        table.add_row(escape(name), measured(mean, std), _noise(std))
    return titled(title, table)


def _noise(std: float | None) -> str:
    return "left out" if std is None else f"{std:.2g}"


def statement_text(statement: PrivacyStatement) -> str:
    """Return the statement's words."""
    headline, *details = str(statement).splitlines()
    colour = "red" if statement.seeded or not statement.certified else "green"
    return "\n".join([f"[{colour}]{escape(headline)}[/{colour}]", *map(escape, details)])
