"""``userdp audit``: attack the mechanisms on this machine."""

from dataclasses import asdict
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
    "rounds": "certified mean, deferred gate, 5 rounds",
    "one-sided-rounds": "certified mean, one-sided gate, 5 rounds",
    "adaptive": "adaptive clipped mean, 5 rounds",
    "levy": "Levy et al.",
    "bassily-sun": "Bassily and Sun",
    "friendly-core": "friendly core",
    "deletions": "deletions",
    "above-threshold": "AboveThreshold",
    "above-threshold-one-sided": "one-sided AboveThreshold",
    "quantile": "private quantile",
    "paper": "paper's mean",
    "paper-small-delta": "paper's mean, delta 1e-6",
    "paper-threshold": "paper's AboveThreshold",
    "mean": "userdp.mean",
    "mean-units": "userdp.mean, units",
    "minimize-clipped": "minimize, clipped mean",
    "minimize-certified": "minimize, certified mean",
    "linear-regression": "LinearRegression",
    "linear-regression-few-users": "LinearRegression, few users",
    "logistic-regression": "LogisticRegression",
}
assert set(_NAMES.values()) == set(MECHANISMS)
# What runs in seconds; the others are attacked by name.
_DEFAULT = ("clipped", "gaussian", "deferred", "one-sided")


def audit(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            help=f"One of {', '.join(_NAMES)}; by default {', '.join(_DEFAULT)}.",
            autocompletion=lambda: list(_NAMES),
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(rich_help_panel="Privacy", help="The claim to attack.")] = 1.0,
    delta: Annotated[float, typer.Option(rich_help_panel="Privacy", help="The claim to attack.")] = 1e-3,
    trials: Annotated[
        int, typer.Option(min=100, help="Runs a side; more prove more. Slow mechanisms make fewer.")
    ] = 2_000,
    seed: Annotated[int, typer.Option(help="The attack is repeatable.")] = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack the mechanisms, to see how much of the claimed epsilon an attacker can prove.

    The attack runs each mechanism on two tables that are hard to tell apart for one user's sake and bounds epsilon
    from below; where the law of the output is known it also says the exact epsilon of these tables. A bound above a
    certified claim would be a defect, and ends with code 1; a low bound only says that this attack is weak.

    ```
    userdp audit clipped --trials 20000
    ```
    """
    if mechanism is not None and mechanism not in _NAMES:
        raise typer.BadParameter(f"there is no mechanism {mechanism!r}; expected one of {', '.join(_NAMES)}.")
    display = Display(as_json, quiet)
    budget = Budget(epsilon, delta)
    found = []
    for name in _DEFAULT if mechanism is None else [mechanism]:
        with display.stage(f"Attacking: {_NAMES[name]}") as advance:
            found.append(attack(_NAMES[name], budget, trials, seed=seed, after_trial=lambda: advance(1)))
    table = plain_table("mechanism", "neighbours", "claimed", "proven", "exact", "trials", "holds")
    for one in found:
        table.add_row(
            one.mechanism,
            one.pair,
            f"{one.claimed:g}",
            f"{one.proven:.3f}",
            "" if one.exact is None else f"{one.exact:.3f}",
            f"{one.trials:,}",
            "yes" if one.holds else "[red]NO[/red]" if one.certified else "no, and not certified",
        )
    record = {
        "delta": delta,
        "trials": trials,
        "confidence": CONFIDENCE,
        "audits": [asdict(one) for one in found],
    }
    display.answer(record, titled(f"Epsilon proven by attack, {CONFIDENCE:.1%} confidence", table))
    if not all(one.holds for one in found if one.certified):
        raise typer.Exit(1)
