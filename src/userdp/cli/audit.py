"""``userdp audit``: attack the mechanisms on this machine."""

from typing import Annotated

import typer

from userdp.audit import CONFIDENCE, MECHANISMS
from userdp.audit import audit as attack
from userdp.cli import options
from userdp.cli.display import Display
from userdp.cli.tables import plain_table, titled
from userdp.privacy.budget import Budget

_NAMES = {
    "clipped": "clipped mean",
    "gaussian": "certified mean, Gaussian gate",
    "deferred": "certified mean, deferred gate",
    "one-sided": "certified mean, one-sided gate",
}
assert set(_NAMES.values()) == set(MECHANISMS)


def audit(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            help=f"One of {', '.join(_NAMES)}; all by default.", autocompletion=lambda: list(_NAMES)
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(rich_help_panel="Privacy", help="The claim to attack.")] = 1.0,
    delta: Annotated[float, typer.Option(rich_help_panel="Privacy", help="The claim to attack.")] = 1e-3,
    trials: Annotated[int, typer.Option(min=100, help="Runs a side; more prove more.")] = 2_000,
    seed: Annotated[int, typer.Option(help="The attack is repeatable.")] = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack the mechanisms, to see how much of the claimed epsilon an attacker can prove.

    The attack runs each mechanism on the two tables that are hardest to hide and bounds epsilon from below. A bound
    above the claim would be a defect, and ends with code 1; a low bound only says that this attack is weak.

    ```
    userdp audit clipped --trials 20000
    ```
    """
    if mechanism is not None and mechanism not in _NAMES:
        raise typer.BadParameter(f"there is no mechanism {mechanism!r}; expected one of {', '.join(_NAMES)}.")
    display = Display(as_json, quiet)
    budget = Budget(epsilon, delta)
    found = []
    for name in _NAMES if mechanism is None else [mechanism]:
        with display.stage(f"Attacking the {_NAMES[name]}", total=2 * trials) as advance:
            found.append(attack(_NAMES[name], budget, trials, seed=seed, after_trial=lambda: advance(1)))
    title = (
        f"Epsilon proven by attack: {trials:,} trials a side, {CONFIDENCE:.1%} confidence, delta = {delta:g}"
    )
    table = plain_table("mechanism", "claimed", "proven", "holds")
    for one in found:
        table.add_row(
            one.mechanism, f"{one.claimed:g}", f"{one.proven:.3f}", "yes" if one.holds else "[red]NO[/red]"
        )
    record = {
        "delta": delta,
        "trials": trials,
        "confidence": CONFIDENCE,
        "audits": [
            {"mechanism": one.mechanism, "claimed": one.claimed, "proven": one.proven} for one in found
        ],
    }
    display.answer(record, titled(title, table))
    if not all(one.holds for one in found):
        raise typer.Exit(1)
