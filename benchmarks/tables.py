"""Table 1 in words: risks against each range, what was refused and why, and where the library loses."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.methods.method import Method
from benchmarks.tasks import ROUNDS

Row = Mapping[str, Any]
HERE = ("certified", "front_door")
WORDS = {
    "mean": "Mean estimation: |θ − mean|²/2 after one private mean",
    "logistic": "Logistic regression in the unit ball: population risk above the ball's best",
}


def table(
    rows: Sequence[Row],
    methods: Mapping[str, Method],
    base: Mapping[str, float],
    ranges: Mapping[str, Sequence[float]],
    tiny: Mapping[str, float],
) -> str:
    """Return the page."""
    at_base = ", ".join(f"{name} = {value:g}" for name, value in base.items())
    lines = [
        "# Table 1, measured",
        "",
        f"Excess risk of every system on the same data; one number changed at a time from {at_base}; δ = 1e-6; "
        "geometric mean over the seeds. A dash: refused or halted, with the reason below; a star: halted in "
        "some runs; a dagger: ran, but the authors' own condition on n or ε does not hold, so that not even they claim "
        "a guarantee. Everything but the numbers of users and items, the dimension, ε, a bound on a row's gradient, "
        "the smoothness and the distance to the optimum is unknown to the systems; steps come from one formula, "
        "nothing is tuned.",
        "",
        "Guarantees: proven here with every constant, but for "
        + ", ".join(method.label for method in methods.values() if not method.certified)
        + ". FriendlyCore 2022 keeps users by weights in place of coins, with a bound of its own (4r/n where all are "
        "friends); Ghazi et al. 2023 is their propose-test-release for a mean, with a thresholded test: neither is the "
        "authors' code.",
        "",
    ]
    for problem, words in WORDS.items():
        mine = [row for row in rows if row["problem"] == problem]
        lines += [f"## {words}", "", f"![excess risk, {problem}](table1-{problem}.svg)", ""]
        for axis, values in ranges.items():
            lines += _against(mine, methods, base, axis, values)
    lines += _tiny(rows, methods, tiny) + _slopes(rows, methods, base, ranges) + _losses(rows, methods)
    return "\n".join(lines + _refusals(rows, methods))


def _find(rows: Sequence[Row], method: str, at: Mapping[str, float]) -> Row | None:
    return next((r for r in rows if r["method"] == method and all(r[key] == at[key] for key in at)), None)


def _shown(row: Row | None, method: Method | None = None) -> str:
    if row is None or row.get("excess_risk") is None:
        return "—"
    beyond = method is not None and not method.claimed(row["n"], row["epsilon"], ROUNDS[row["problem"]])
    return (
        f"{row['excess_risk']:.2g}" + ("\\*" if row["status"] == "halted" else "") + ("†" if beyond else "")
    )


def _against(
    rows: Sequence[Row],
    methods: Mapping[str, Method],
    base: Mapping[str, float],
    axis: str,
    values: Sequence[float],
) -> list[str]:
    lines = [
        f"| system | needs | {' | '.join(f'{axis} = {value:g}' for value in values)} |",
        "|---|---|" + "---|" * len(values),
    ]
    for name, method in methods.items():
        found = [_find(rows, name, {**base, axis: value}) for value in values]
        lines.append(
            f"| {method.label} | {method.needs} | {' | '.join(_shown(row, method) for row in found)} |"
        )
    there = [_find(rows, "no_privacy", {**base, axis: value}) for value in values]
    origin = [f"{row['start']:.2g}" if row else "" for row in there]
    return [*lines, f"| *the origin* | | {' | '.join(origin)} |", ""]


def _tiny(rows: Sequence[Row], methods: Mapping[str, Method], tiny: Mapping[str, float]) -> list[str]:
    at = ", ".join(f"{name} = {value:g}" for name, value in tiny.items())
    lines = [
        f"## A handful of users: {at}",
        "",
        "| system | mean | logistic | seconds |",
        "|---|---|---|---|",
    ]
    for name, method in methods.items():
        both = [_find([r for r in rows if r["problem"] == problem], name, tiny) for problem in WORDS]
        seconds = [row["seconds"] for row in both if row is not None and "seconds" in row]
        if seconds:
            cells = " | ".join(_shown(row, method) for row in both)
            lines.append(f"| {method.label} | {cells} | {max(seconds):.1f} |")
    return [*lines, ""]


def _slopes(
    rows: Sequence[Row],
    methods: Mapping[str, Method],
    base: Mapping[str, float],
    ranges: Mapping[str, Sequence[float]],
) -> list[str]:
    """Log-log slopes of the mean's risk between the ends of each range."""
    lines = [
        "## Growth of the mean's risk",
        "",
        "Log-log slope between the ends of each range, where the system ran at both. Theory for a private mean without "
        "sampling error: −2 in n, −1 in m, 1 in d, −2 in ε; Levy et al. have 2 in d; without concentration 0 in m.",
        "",
        "| system | " + " | ".join(ranges) + " |",
        "|---|" + "---|" * len(ranges),
    ]
    mine = [row for row in rows if row["problem"] == "mean"]
    for name, method in methods.items():
        cells = []
        for axis, values in ranges.items():
            ends = [_find(mine, name, {**base, axis: value}) for value in (values[0], values[-1])]
            risks = [row["excess_risk"] for row in ends if row is not None and row.get("excess_risk")]
            decades = math.log(values[-1] / values[0])
            cells.append(f"{math.log(risks[1] / risks[0]) / decades:+.2f}" if len(risks) == 2 else "—")
        lines.append(f"| {method.label} | {' | '.join(cells)} |")
    return [*lines, ""]


def _losses(rows: Sequence[Row], methods: Mapping[str, Method]) -> list[str]:
    """List every setting at which a proven rival has a tenth less risk than one of ours."""
    lines = [
        "## Where this library loses",
        "",
        "Settings at which another system with a proven guarantee has at least a tenth less excess risk than one of "
        "ours, or runs where ours does not.",
        "",
        "| problem | n | m | d | ε | ours | best other | its risk / ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ours in (row for row in rows if row["method"] in HERE):
        same = ("problem", "n", "m", "d", "epsilon")
        rivals = [
            row
            for row in rows
            if all(row[key] == ours[key] for key in same)
            and row["method"] not in HERE
            and methods[row["method"]].certified
            and row.get("excess_risk")
        ]
        best = min(rivals, key=lambda row: float(row["excess_risk"]))
        if ours.get("excess_risk") and best["excess_risk"] >= 0.9 * ours["excess_risk"]:
            continue
        ratio = f"{best['excess_risk'] / ours['excess_risk']:.2g}" if ours.get("excess_risk") else "—"
        lines.append(
            f"| {ours['problem']} | {ours['n']:,} | {ours['m']} | {ours['d']} | {ours['epsilon']:g} | "
            f"{methods[ours['method']].label}: {_shown(ours)} | "
            f"{methods[best['method']].label}: {_shown(best)} | {ratio} |"
        )
    return [*lines, ""]


def _refusals(rows: Sequence[Row], methods: Mapping[str, Method]) -> list[str]:
    lines = [
        "## Refused, halted",
        "",
        "| system | problem | n | m | d | ε | what it said |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, method in methods.items():
        lines += [
            f"| {method.label} | {row['problem']} | {row['n']:,} | {row['m']} | {row['d']} | {row['epsilon']:g} | "
            f"{row['status']}: {row['note']} |"
            for row in rows
            if row["method"] == name and row["status"] != "ran"
        ]
    return [*lines, ""]
