"""``userdp plan``: what to expect from a table before reading it."""

import math
import warnings
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.tables import plain_table, titled
from userdp.errors import PrivacyWarning
from userdp.planning.expected import expected_excess_loss, users_for
from userdp.planning.shares import shares
from userdp.privacy import Budget

_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
_USERS = (0.1, 0.3, 1.0, 3.0, 10.0)
_BAR = 40


def plan(
    users: Annotated[int, typer.Option(show_default=False, help="How many users there are.")],
    items: Annotated[int, typer.Option(show_default=False, help="Typical number of rows of a user.")],
    features: Annotated[int, typer.Option(show_default=False, help="How many features.")],
    epsilon: options.Epsilon,
    delta: options.Delta,
    target: Annotated[
        float | None,
        typer.Option(show_default=False, help="An expected error to reach: how many users does it take?"),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tell what `userdp fit` is expected to lose, and how many users are needed; reads no data.

    The error is the expected excess logistic loss on features that are not correlated and users who differ by chance
    alone; a model that knows the base rate and nothing else loses 0.1. Real tables lose more.

    ```
    userdp plan --users 10000 --items 100 --features 50 --epsilon 1 --delta 1e-6 --target 0.001
    ```
    """
    display = Display(as_json, quiet)
    budget = Budget(epsilon, delta)
    expected = expected_excess_loss(users, items, features, budget)
    split = shares(users, features, budget, is_regression=False)
    steps = len(_EPSILONS) * len(_USERS) + (target is not None)
    with display.stage("Planning", total=steps) as advance:
        grid = {}
        for factor in _EPSILONS:
            for share in _USERS:
                other, n = factor * epsilon, max(1, round(share * users))
                grid[other, n] = _error(n, items, features, other, delta)
                advance(1)
        needed = None if target is None else users_for(target, items, features, budget)
    record = {
        "expected_error": expected,
        "effective_users": split.effective_users,
        "finds_units": split.scale > 0,
        "users_for_target": needed,
        "grid": [{"epsilon": e, "users": n, "expected_error": error} for (e, n), error in grid.items()],
    }
    what = (
        f"about {split.effective_users:,.0f} effective users (users times mu)"
        if split.scale
        else "too few users to find the units of so many features: expect a base rate"
    )
    display.answer(
        record,
        f"Expected error [bold]{expected:.2g}[/bold] with {users:,} users of {items:,} rows, "
        f"{features:,} features, epsilon = {epsilon:g}, delta = {delta:g}\n  {what}\n",
        _grid_table(grid, epsilon, users),
        _chart({n: error for (e, n), error in grid.items() if e == epsilon}, epsilon, users),
    )
    if needed is not None:
        display.show(f"\nAn expected error of {target:g} takes about [bold]{needed:,}[/bold] users.")


def _error(n_users: int, items: int, features: int, epsilon: float, delta: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the grid reaches beyond what was asked for
        return expected_excess_loss(n_users, items, features, Budget(epsilon, delta))


def _grid_table(grid: dict[tuple[float, int], float], epsilon: float, users: int) -> Group:
    sizes = list(dict.fromkeys(n for _, n in grid))
    table = plain_table("epsilon", *(f"{n:,} users" for n in sizes))
    for budget in dict.fromkeys(e for e, _ in grid):
        cells = []
        for n in sizes:
            text = f"{grid[budget, n]:.2g}"
            cells.append(f"[bold]{text}[/bold]" if (budget, n) == (epsilon, users) else text)
        table.add_row(f"{budget:g}", *cells)
    return titled("Expected error", table)


def _chart(errors: dict[int, float], epsilon: float, users: int) -> Text:
    """Draw one bar a number of users, on a logarithmic scale."""
    low, high = min(errors.values()) / 2, max(errors.values())
    width = len(f"{max(errors):,}")
    chart = Text(f"\nExpected error at epsilon = {epsilon:g}, logarithmic\n", style="bold")
    for n, error in errors.items():
        length = round(_BAR * math.log(error / low) / math.log(high / low))
        style = "bold green" if n == users else "green"
        chart.append(f"{n:>{width},} users ", style="default")
        chart.append("█" * max(length, 1), style=style)
        chart.append(f" {error:.2g}\n", style="default")
    chart.rstrip()
    return chart
