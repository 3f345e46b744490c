"""Options that several commands share, and how their text is read."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from userdp.data import Table
from userdp.errors import InvalidInputError

_PRIVACY, _TABLE, _OUTPUT = "Privacy", "Table", "Output"


def _option(*names: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, show_default=more.pop("show_default", False), **more)


Data: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A parquet or CSV file, or a folder or 'glob' of parquet files."),
]
User: TypeAlias = Annotated[
    str, _option("--user", panel=_TABLE, help="Column that says whose row it is; several: a,b.")
]
Categories: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--categories",
        panel=_TABLE,
        metavar="COLUMN=A,B",
        help="Declare the values of a column that is not a number; repeat for more columns.",
    ),
]
Other: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--other",
        panel=_TABLE,
        metavar="A,B,...",
        help="Columns whose undeclared values are collected in one more category.",
    ),
]
MinItems: TypeAlias = Annotated[
    int,
    _option(
        "--min-items", panel=_TABLE, show_default=True, help="Users with fewer rows count, but say nothing."
    ),
]
Epsilon: TypeAlias = Annotated[
    float, _option("--epsilon", panel=_PRIVACY, help="Budget for each whole user; 1 is a common choice.")
]
Delta: TypeAlias = Annotated[
    float, _option("--delta", panel=_PRIVACY, help="Far below 1 / number of users, for example 1e-6.")
]
Unit: TypeAlias = Annotated[
    str,
    _option("--unit", panel=_PRIVACY, show_default=True, help="What a user is, in the statement's words."),
]
Seed: TypeAlias = Annotated[
    int | None,
    _option(
        "--seed",
        panel=_PRIVACY,
        help="Repeatable, for experiments only: the result is marked as unprotected.",
    ),
]
LedgerFile: TypeAlias = Annotated[
    Path | None,
    _option("--ledger", panel=_PRIVACY, help="Ledger to reserve the budget in; needs --dataset."),
]
Dataset: TypeAlias = Annotated[
    str | None, _option("--dataset", panel=_PRIVACY, help="Name of these users in the ledger.")
]
Overwrite: TypeAlias = Annotated[
    bool, _option("--overwrite", panel=_OUTPUT, help="Replace the files of an earlier run.")
]
Json: TypeAlias = Annotated[bool, _option("--json", panel=_OUTPUT, help="Print one JSON object.")]
Quiet: TypeAlias = Annotated[
    bool, _option("--quiet", "-q", panel=_OUTPUT, help="Print nothing but warnings and errors.")
]


def names_in(text: str) -> list[str]:
    """Read a list of names separated by commas; quotes protect a comma inside a name.

    Examples
    --------
    >>> names_in('a, b,"c, d"')
    ['a', 'b', 'c, d']
    """
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise InvalidInputError(f"expected names separated by commas, got {text!r}")
    return names


def others_in(lists: Sequence[str] | None) -> list[str]:
    """Read ``--other``, which may be repeated and may name several columns."""
    return list(dict.fromkeys(name for text in lists or () for name in names_in(text)))


def categories_in(declarations: Sequence[str], table: Table) -> dict[str, list[str] | list[float]]:
    """Read declarations such as ``carrier=UA,B6``; values of numeric columns become numbers."""
    found: dict[str, list[str] | list[float]] = {}
    for declaration in declarations:
        column, equals, values = declaration.partition("=")
        if not equals:
            raise InvalidInputError(f"expected --categories COLUMN=A,B,..., got {declaration!r}")
        if column in found:
            raise InvalidInputError(f"--categories declares {column!r} twice; list all its values at once")
        found[column] = values_in(values, table, column)
    return found


def values_in(text: str, table: Table, column: str) -> list[str] | list[float]:
    """Read declared categories or classes: numbers if all are and the column's type allows numbers."""
    words = names_in(text)
    table.require([column])
    if table.kind(column) not in ("number", "untyped"):
        return words
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return words
    return [int(number) if number.is_integer() else number for number in numbers]


def purpose(command: str, seed: int | None) -> str:
    """Say in the ledger what a release was, and that it was seeded."""
    return command if seed is None else f"{command}, from a seed"
