"""Turn rows into ``results/peers.json`` and ``results/peers.md``."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, write_result
from benchmarks.peers.objective import FLOOR
from benchmarks.peers.problem import EPSILONS

Row = dict[str, Any]
TIMINGS = RESULTS / "peers_timing.json"
OURS = "userdp_default"
OPPONENT, WITH_BASE_RATE = "tuned clipping", "tuned clipping, base rate"

PROTOCOL = f"""\
User-averaged test loss beyond that of a fit without privacy on the same users (logistic loss; squared error over the
variance of the test targets, so that an excess is a loss of R2), mean over noise seeds. delta = 1e-6, replacing one
user, at most 64 rows a user for everybody, user-disjoint test sets. Before a ratio both excess losses are floored at
{FLOOR}.

* `userdp_default`: `LogisticRegression` or `LinearRegression` of this library on raw features, given nothing but the
  budget.
* `tuned clipping`: what the peers do (full-batch descent on users' mean gradients clipped around zero) with clip, step
  and rounds tuned on the test loss over 6 or more noise seeds, features and targets standardized by their true moments
  for free; evaluated on 8 fresh seeds. With `base rate`: a private base rate is bought first, as the start of the
  intercept.
* `jax_privacy_peer`, `opacus_peer`, `pfl_peer`: the peers' own code at that tuned setting, 5 seeds. They calibrate for
  removing a user; their noise is doubled, since replacing one moves a clipped sum twice as far. Every user takes part
  in every round.
* `pfl_adaptive`, `opacus_adaptive`, `userdp_adaptive`: the clip follows the median norm from the tuned clip on; where
  it outgrows the tuned clip the step shrinks, so that the noise reaches as far as in the tuned descent. pfl simulates
  users one by one, a sixth of a millisecond each in every round. opacus puts its users into a batch once here; in
  `opacus_peer` its data loader does so in every round, which takes most of the time.
* `diffprivlib_peer`: row-level privacy at epsilon/64 (group privacy), delta = 0; classification only. Its bound on the
  norm of rows and its regularization are the best of a grid on the test loss, which takes a thousand fits.

The ratio to quote is the one where the peer may buy a base rate: to the better one of its two starts. The constants of
the defaults were chosen in trials on these four tables ([where they come from](../../docs/inside-fit.md)), so what is
below flatters them: on eighteen [other tables](holdout.md) the same defaults lose to a peer tuned in the same way.

In `peers.json`, `clip`, `step` and `rounds` are what a method was given. Its `seconds_per_round` and `peak_mb` were
taken while other processes ran, and those of `pfl_peer` on all of jester in two rounds whose time all four budgets
share; the table under "Time and memory" is the one to quote.
"""


def publish(rows: list[Row], unmeasured: dict[str, list[str]]) -> None:
    """Write the rows, with their ratios, and the page, which names what was not measured."""
    with_ratios(rows)
    rows.sort(key=lambda row: (row["task"], row["table"], row["users"], row["epsilon"], row["method"]))
    write_result("peers", "make bench-peers", {"rows": rows}, "\n".join(page(rows, unmeasured)))


def load_timings() -> list[Row]:
    rows: list[Row] = json.loads(TIMINGS.read_text()) if TIMINGS.exists() else []
    return rows


def with_ratios(rows: list[Row]) -> None:
    """Add each row's ratio to the tuned peer of its setting, and to the better one of it and its base-rate start.

    The peers' own runs are the same descent at the same setting with fewer seeds; the least of many noisy figures would
    be a lucky one, so none of them is the yardstick.
    """
    models = [row for row in rows if row["task"] != "mean"]
    peer = {setting(row): row["excess_loss"] for row in models if row["method"] == OPPONENT}
    based = {setting(row): row["excess_loss"] for row in models if row["method"] == WITH_BASE_RATE}
    for row in models:
        if setting(row) in peer:
            plain = peer[setting(row)]
            best = min(plain, based.get(setting(row), plain))
            row["ratio"] = round(ratio(row["excess_loss"], plain), 3)
            row["ratio_with_base_rate"] = round(ratio(row["excess_loss"], best), 3)


def setting(row: Row) -> tuple[Any, ...]:
    return row["table"], row["task"], row["users"], row["epsilon"]


def ratio(ours: float, theirs: float) -> float:
    return max(ours, FLOOR) / max(theirs, FLOOR)


def quoted(row: Row) -> float:
    """Return the ratio to quote: to the tuned peer with the better one of its starts."""
    return float(row["ratio_with_base_rate"])


def relative_error(row: Row) -> float:
    """Return the standard error of a mean excess loss, over that mean."""
    return float(row["excess_loss_std"] / math.sqrt(row["seeds"]) / max(row["excess_loss"], FLOOR))


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(float(np.mean(np.log(list(values)))))


def page(rows: list[Row], unmeasured: dict[str, list[str]]) -> list[str]:
    models = [row for row in rows if row["task"] != "mean" and "ratio" in row]
    ours = [row for row in models if row["method"] == OURS]
    lines = ["# Peers in one run", "", PROTOCOL]
    if ours:
        lines += [
            *summary(ours, sum(row["method"] == OPPONENT for row in models)),
            *by_setting(models, ours),
            *losses(ours),
        ]
    lines += [*real_peers(models), *gaps(unmeasured), *timings(load_timings())]
    lines += means([row for row in rows if row["task"] == "mean"])
    return lines


def summary(ours: list[Row], n_settings: int) -> list[str]:
    """Geometric means of our ratios, per table and task."""

    def line(name: str, chosen: list[Row]) -> str:
        plain = geometric_mean(row["ratio"] for row in chosen)
        based = geometric_mean(map(quoted, chosen))
        return f"| {name} | {len(chosen)} | {plain:.2f} | {based:.2f} | {max(map(quoted, chosen)):.2f} |"

    def group(name: Callable[[Row], str]) -> list[str]:
        return [line(value, [r for r in ours if name(r) == value]) for value in sorted(set(map(name, ours)))]

    return [
        "## Excess loss of the default estimators over the tuned peer",
        "",
        f"Geometric means over the {len(ours)} settings measured, of {n_settings} in which the peer was tuned; below 1 "
        "the defaults, with nothing tuned, are better. An excess loss of the defaults has a standard error of "
        f"{np.median([relative_error(row) for row in ours]):.0%} over its seeds (median).",
        "",
        "| settings | number | ratio | ratio where the peer may buy a base rate | worst of the latter |",
        "|---|---|---|---|---|",
        line("all", ours),
        *group(lambda row: row["table"]),
        *group(lambda row: row["task"]),
        *group(lambda row: "n mu of 40 or more" if row["n_mu"] >= 40 else "n mu below 40"),
        "",
    ]


def by_setting(models: list[Row], ours: list[Row]) -> list[str]:
    best: dict[tuple[Any, ...], float] = {}
    for row in models:
        if row["method"] in (OPPONENT, WITH_BASE_RATE):
            best[setting(row)] = min(best.get(setting(row), math.inf), row["excess_loss"])
    cells = {
        setting(row): f"{row['excess_loss']:.4f}/{best[setting(row)]:.4f} ({quoted(row):.2f})" for row in ours
    }
    problems = sorted({place[:3] for place in cells})
    return [
        "Excess loss of the defaults/of the tuned peer, with a base rate where that is better (ratio):",
        "",
        "| table, task, users | " + " | ".join(f"epsilon {epsilon}" for epsilon in EPSILONS) + " |",
        "|---|" + "---|" * len(EPSILONS),
        *(
            f"| {table}, {task}, {users:,} | "
            + " | ".join(cells.get((table, task, users, epsilon), "") for epsilon in EPSILONS)
            + " |"
            for table, task, users in problems
        ),
        "",
    ]


def losses(ours: list[Row]) -> list[str]:
    """Name the settings where the defaults lose clearly, by the ratio to quote."""
    lost = sorted((row for row in ours if quoted(row) > 1.5), key=lambda row: -quoted(row))
    return [
        "## Where the defaults lose",
        "",
        f"{len(lost)} of {len(ours)} settings cost more than 1.5 times the excess loss of the tuned peer, which may "
        f"buy a base rate; {sum(row['n_mu'] >= 40 for row in lost)} of them with n mu of 40 or more:",
        "",
        "| table, task, users | epsilon | n mu | excess loss | ratio | ratio without a base rate |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['table']}, {row['task']}, {row['users']:,} | {row['epsilon']} | {row['n_mu']:.0f} | "
            f"{row['excess_loss']:.4f} | {quoted(row):.2f} | {row['ratio']:.2f} |"
            for row in lost
        ),
        "",
    ]


def real_peers(models: list[Row]) -> list[str]:
    """Compare each peer's own code with the vectorized opponent at the same setting, and the defaults with it."""
    by_method: dict[str, list[Row]] = defaultdict(list)
    opponent = {setting(row): row["excess_loss"] for row in models if row["method"] == OPPONENT}
    ours = {setting(row): row["excess_loss"] for row in models if row["method"] == OURS}
    for row in models:
        if "seconds_per_round" in row and setting(row) in opponent:
            by_method[row["method"]].append(row)

    def over_opponent(rows: list[Row]) -> str:
        ratios = [ratio(row["excess_loss"], opponent[setting(row)]) for row in rows]
        return f"{geometric_mean(ratios):.2f}" if ratios else ""

    def under_ours(rows: list[Row]) -> str:
        ratios = [ratio(ours[setting(r)], r["excess_loss"]) for r in rows if setting(r) in ours]
        return f"{geometric_mean(ratios):.2f} ({len(ratios)})" if ratios else ""

    return [
        "## The peers' own code",
        "",
        "Excess loss over that of `tuned clipping` at the same settings, geometric means; and the excess loss of the "
        "defaults over the method's, on the settings (their number) that both ran.",
        "",
        "| method | settings | all | "
        + " | ".join(f"epsilon {epsilon}" for epsilon in EPSILONS)
        + " | defaults over it |",
        "|---|---|---|" + "---|" * len(EPSILONS) + "---|",
        *(
            f"| {name} | {len(rows)} | {over_opponent(rows)} | "
            + " | ".join(over_opponent([r for r in rows if r["epsilon"] == epsilon]) for epsilon in EPSILONS)
            + f" | {under_ours(rows)} |"
            for name, rows in sorted(by_method.items())
        ),
        "",
    ]


def gaps(unmeasured: dict[str, list[str]]) -> list[str]:
    """Say what is missing, if anything is."""
    lines = [f"* `{name}`: {', '.join(where)}" for name, where in unmeasured.items() if where]
    return ["Not measured, or not at every epsilon:", "", *lines, ""] if lines else []


def timings(rows: list[Row]) -> list[str]:
    """Show times and memory of every method on the same problems, over those of the defaults."""
    if not rows:
        return []
    ours = {row["table"]: row for row in rows if row["method"] == OURS}

    def line(row: Row) -> str:
        base = ours.get(row["table"])

        def cell(value: Callable[[Row], float], form: str) -> str:
            return f"{value(row):{form}}" + (f" ({value(row) / value(base):.2g})" if base else "")

        return (
            f"| {row['table']} | {row['method']} | {cell(lambda r: 1e3 * r['seconds_per_round'], '.3g')} | "
            f"{cell(lambda r: r['fit_seconds'], '.3g')} | {cell(lambda r: r['first_fit_seconds'], '.3g')} | "
            f"{row['start_mb']:.0f} | {cell(lambda r: r['peak_mb'], '.0f')} |"
        )

    first = rows[0]
    return [
        "## Time and memory",
        "",
        f"{first['task'].capitalize()} with {first['users']} users at epsilon = {first['epsilon']:g}, each method by "
        "itself on an idle machine of two cores; in parentheses over that of `userdp_default`. A fit is everything "
        "from rows to predictions; the first one in a process, after the imports, also calibrates noise and compiles. "
        "A round of `userdp_default` is its fit divided by its rounds, private scales, start and radii included; a "
        "round of the others is descent alone. Memory is that of the whole process, resident after the imports and "
        "at its peak.",
        "",
        "| table | method | ms a round | s a fit | s the first fit | MB at start | MB at the peak |",
        "|---|---|---|---|---|---|---|",
        *map(line, sorted(rows, key=lambda row: (row["table"], row["method"]))),
        "",
        *disturbed(rows),
    ]


def disturbed(rows: list[Row]) -> list[str]:
    """Say which timings had company, and how much."""
    shares = {
        f"{row['method']} on {row['table']}": row["others"] for row in rows if (row.get("others") or 0) > 0.1
    }
    if not shares:
        return []
    named = ", ".join(f"{name} ({share:.0%})" for name, share in shares.items())
    return [f"Not on an idle machine, with the share that other processes took of it: {named}.", ""]


def means(rows: list[Row]) -> list[str]:
    ours = [row for row in rows if row["method"] == "userdp.mean"]
    if not ours:
        return []
    return [
        "## Means",
        "",
        "`userdp.mean` with nothing given; its root mean squared error over that of clipping into the best ball an "
        "oracle would choose, and over that of clipping around zero with an oracle's radius; `refused`: runs that "
        "ended without a release. `from zero`: distance of the mean from zero in radii of the best ball. The radius "
        "of the best ball minimizes a bound on the error, not the error, so a ratio to it can be below 1. "
        + lost_means(ours),
        "",
        "| table, users | from zero | "
        + " | ".join(f"epsilon {epsilon}: over best ball, over zero ball, refused" for epsilon in EPSILONS)
        + " |",
        "|---|---|" + "---|" * len(EPSILONS),
        *mean_lines(ours),
        "",
    ]


def lost_means(ours: list[Row]) -> str:
    """Say in how many settings clipping around zero is better."""
    answered = [row for row in ours if row["rmse"] is not None]
    lost = sum(row["ratio_to_zero_ball"] > 1 for row in answered)
    return f"Clipping around zero is better in {lost} of the {len(answered)} settings with an answer."


def mean_lines(ours: list[Row]) -> list[str]:
    by_problem: dict[tuple[str, int], dict[float, Row]] = defaultdict(dict)
    for row in ours:
        by_problem[row["table"], row["users"]][row["epsilon"]] = row

    def cell(row: Row | None) -> str:
        if row is None or row["rmse"] is None:
            return "" if row is None else f"refused {row['refused']}"
        return f"{row['ratio_to_best_ball']:.2f}, {row['ratio_to_zero_ball']:.2f}, {row['refused']}"

    return [
        f"| {table}, {users:,} | {found.get(1.0, next(iter(found.values())))['radii_from_zero']} | "
        + " | ".join(cell(found.get(epsilon)) for epsilon in EPSILONS)
        + " |"
        for (table, users), found in sorted(by_problem.items())
    ]
