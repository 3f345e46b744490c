"""``userdp ledger``: what data sets may spend, and have spent."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.markup import escape

from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.tables import plain_table
from userdp.privacy.ledger import Account, Amount, Ledger

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

    userdp ledger limit budget.db patients --epsilon 3 --delta 1e-5
    """
    with Ledger(file) as book:
        book.limit(dataset, epsilon, delta)
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

    userdp ledger show budget.db
    """
    with Ledger(file, create=False) as book:
        accounts = book.status(dataset)
    display = Display(as_json, quiet)
    summary = plain_table("Privacy budgets", "data set", "limit", "spent", "remains")
    for account in accounts:
        summary.add_row(
            escape(account.dataset), *map(_pair, (account.limit, account.spent, account.remaining))
        )
    releases = plain_table("Releases", "data set", "what", "epsilon, delta", "reserved", "released")
    for account in accounts:
        for entry in account.entries:
            amount = Amount(entry.reservation.epsilon, entry.reservation.delta)
            words = (
                account.dataset,
                entry.what,
                _pair(amount),
                entry.reserved_at,
                entry.released_at or "never",
            )
            releases.add_row(*map(escape, words))
    display.answer({"datasets": [_record(account) for account in accounts]}, summary, releases)


def _pair(amount: Amount) -> str:
    return f"{amount.epsilon:g}, {amount.delta:g}"


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
                **_amount(Amount(entry.reservation.epsilon, entry.reservation.delta)),
                "reserved_at": entry.reserved_at,
                "released_at": entry.released_at,
                "reference": entry.reference,
            }
            for entry in account.entries
        ],
    }


def _amount(amount: Amount) -> dict[str, str]:
    return {"epsilon": str(amount.epsilon), "delta": str(amount.delta)}
