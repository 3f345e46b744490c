"""``userdp plan``: what to expect from a table before reading it."""

import math
import warnings
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

import userdp
from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.tables import plain_table, titled
from userdp.errors import PrivacyWarning, TooFewUsersError

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
    """Tell what to expect, and how many users are needed; reads no data.

    The error is the expected excess risk of a logistic loss on features of norm at most 1, started at distance 1 from
    the optimum.

    ```
    userdp plan --users 10000 --items 100 --features 50 --epsilon 1 --delta 1e-6 --target 0.001
    ```
    """
    display = Display(as_json, quiet)
    asked: dict[str, Any] = {"items_per_user": items, "n_features": features, "delta": delta}
    chosen = userdp.plan(n_users=users, epsilon=epsilon, **asked)
    (phase,) = chosen.phases
    steps = len(_EPSILONS) * len(_USERS) + (target is not None)
    with display.stage("Planning", total=steps) as advance:
        grid = {}
        for factor in _EPSILONS:
            for share in _USERS:
                budget, n = factor * epsilon, max(1, round(share * users))
                grid[budget, n] = _error(n, budget, asked)
                advance(1)
        needed = None if target is None else chosen.users_for(target)
    record = {
        "expected_error": chosen.excess_risk,
        "rounds": phase.rounds,
        "radius": phase.radius,
        "noise_std": phase.noise_std,
        "users_for_target": needed,
        "grid": [{"epsilon": e, "users": n, "expected_error": error} for (e, n), error in grid.items()],
    }
    display.answer(
        record,
        f"Expected error [bold]{chosen.excess_risk:.2g}[/bold] with {users:,} users of {items:,} rows, "
        f"{features:,} features, epsilon = {epsilon:g}, delta = {delta:g}\n"
        f"  {phase.rounds:,} rounds, radius {phase.radius:.3g}, noise {phase.noise_std:.2g} per coordinate and round\n",
        _grid_table(grid, epsilon, users),
        _chart({n: error for (e, n), error in grid.items() if e == epsilon}, epsilon, users),
    )
    if needed is not None:
        display.show(f"\nAn expected error of {target:g} takes about [bold]{needed:,}[/bold] users.")


def _error(n_users: int, epsilon: float, asked: dict[str, Any]) -> float | None:
    """Return the expected error, or None where no plan exists."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the grid reaches beyond what was asked for
        try:
            return userdp.plan(n_users=n_users, epsilon=epsilon, **asked).excess_risk
        except TooFewUsersError:
            return None


def _grid_table(grid: dict[tuple[float, int], float | None], epsilon: float, users: int) -> Group:
    sizes = list(dict.fromkeys(n for _, n in grid))
    table = plain_table("epsilon", *(f"{n:,} users" for n in sizes))
    for budget in dict.fromkeys(e for e, _ in grid):
        cells = []
        for n in sizes:
            error = grid[budget, n]
            text = "too few" if error is None else f"{error:.2g}"
            cells.append(f"[bold]{text}[/bold]" if (budget, n) == (epsilon, users) else text)
        table.add_row(f"{budget:g}", *cells)
    return titled("Expected error", table)


def _chart(errors: dict[int, float | None], epsilon: float, users: int) -> Text:
    """Draw one bar a number of users, on a logarithmic scale."""
    known = {n: error for n, error in errors.items() if error is not None}
    low, high = min(known.values()) / 2, max(known.values())
    width = len(f"{max(known):,}")
    chart = Text(f"\nExpected error at epsilon = {epsilon:g}, logarithmic\n", style="bold")
    for n, error in known.items():
        length = round(_BAR * math.log(error / low) / math.log(high / low))
        style = "bold green" if n == users else "green"
        chart.append(f"{n:>{width},} users ", style="default")
        chart.append("█" * max(length, 1), style=style)
        chart.append(f" {error:.2g}\n", style="default")
    chart.rstrip()
    return chart
