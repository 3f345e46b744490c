"""``userdp ledger``: what data sets may spend, and have spent."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.markup import escape

from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.spending import tidy
from userdp.cli.tables import plain_table, titled
from userdp.privacy.ledger import Account, Amount, Entry, Ledger

ledger = typer.Typer(help="Keep data sets within their privacy budgets.")

File: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger.")]


@ledger.command()
def limit(
    file: File,
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="One name for all tables about the same people.")
    ],
    epsilon: options.Epsilon,
    delta: options.Delta,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Set, raise or lower what a data set may spend in all; starts the ledger where there is none.

    ```
    userdp ledger limit budget.db patients --epsilon 3 --delta 1e-5
    ```
    """
    with Ledger(file) as book:
        book.limit(dataset, tidy(epsilon), delta)
        (account,) = book.status(dataset)
    display = Display(as_json, quiet)
    display.answer(
        _record(account), f"{escape(dataset)} may spend {account.limit}; {account.remaining} remains"
    )


@ledger.command()
def show(
    file: File,
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Only this one.")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show limits, releases and what remains.

    ```
    userdp ledger show budget.db
    ```
    """
    with Ledger(file, create=False) as book:
        accounts = book.status(dataset)
    budgets = plain_table("data set", "limit", "spent", "remains")
    releases = plain_table("data set", "what", "epsilon, delta", "reserved (UTC)", "released (UTC)")
    for account in accounts:
        name = escape(account.dataset)
        budgets.add_row(name, *map(_pair, (account.limit, account.spent, account.remaining)))
        for entry in account.entries:
            when = (_minute(entry.reserved_at), _minute(entry.released_at) if entry.released_at else "never")
            releases.add_row(name, escape(entry.what), _pair(_amount_of(entry)), *when)
    display = Display(as_json, quiet)
    display.answer(
        {"datasets": [_record(account) for account in accounts]}, titled("Privacy budgets", budgets)
    )
    if releases.row_count:
        display.show(titled("Releases", releases))


def _pair(amount: Amount) -> str:
    return f"{amount.epsilon:g}, {amount.delta:g}"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _amount_of(entry: Entry) -> Amount:
    return Amount(entry.reservation.epsilon, entry.reservation.delta)


def _record(account: Account) -> dict[str, Any]:
    """Amounts as text: they are exact decimals."""
    return {
        "dataset": account.dataset,
        "limit": _amount(account.limit),
        "spent": _amount(account.spent),
        "remaining": _amount(account.remaining),
        "releases": [
            {
                "what": entry.what,
                **_amount(_amount_of(entry)),
                "reserved_at": entry.reserved_at,
                "released_at": entry.released_at,
                "reference": entry.reference,
            }
            for entry in account.entries
        ],
    }


def _amount(amount: Amount) -> dict[str, str]:
    return {"epsilon": str(amount.epsilon), "delta": str(amount.delta)}
