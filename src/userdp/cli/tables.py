"""Releases as tables for the terminal."""

from rich.markup import escape
from rich.table import Table

from userdp.arrays import FloatArray
from userdp.cli.reports import Effect, effects
from userdp.estimators.linear_model import LinearModel
from userdp.privacy.statement import PrivacyStatement
from userdp.report.numbers import measured

_ROWS = 12


def plain_table(title: str, *headings: str) -> Table:
    """Return an empty table; the first column is for names, the others for numbers."""
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", overflow="fold")
    return table


def effects_table(model: LinearModel, statement: PrivacyStatement) -> Table:
    """Show the largest effects of a model's features, each with its noise."""
    found = effects(model)
    largest = sorted(found, key=lambda effect: -abs(effect.value))[:_ROWS]
    shown = f", the {len(largest)} largest of {len(found)} effects" if len(found) > len(largest) else ""
    table = plain_table(
        f"{model.kind} of {statement.n_users:,} users{shown}",
        "feature",
        "effect of one spread",
        "noise (std)",
    )
    for effect in largest:
        table.add_row(escape(effect.name), *_with_noise(effect))
    return table


def _with_noise(effect: Effect) -> tuple[str, str]:
    value = measured(effect.value, effect.noise_std)
    return value, "" if effect.noise_std is None else f"{effect.noise_std:.2g}"


def means_table(title: str, columns: tuple[str, ...], value: FloatArray, noise_std: float) -> Table:
    """Show means, each with its noise."""
    table = plain_table(title, "column", "private mean", "noise (std)")
    for name, mean in zip(columns, value, strict=True):
        table.add_row(escape(name), measured(float(mean), noise_std), f"{noise_std:.2g}")
    return table


def statement_text(statement: PrivacyStatement) -> str:
    """Return the statement's words."""
    headline, *details = str(statement).splitlines()
    colour = "red" if statement.seeded or not statement.certified else "green"
    return "\n".join([f"[{colour}]{escape(headline)}[/{colour}]", *map(escape, details)])
