"""Turn rows into ``results/robustness.json`` and ``results/robustness.md``."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import write_result
from benchmarks.peers.objective import FLOOR
from benchmarks.robustness.changes import AS_IT_IS, CHANGES, CONTROLS, compared_with

Row = dict[str, Any]
Setting = tuple[str, str, int]
LITTLE, UNITS = "little data", "odd units"
ORACLE = "oracle's bounds"
# Goals: loss over that of a constant; excess loss over that of the table as it is.
MOST_LOSS, MOST_CHANGE = 1.05, 1.2

PROTOCOL = """\
The default `LogisticRegression` and `LinearRegression`, given raw features and a budget; delta = 1e-6, replacing one
user, at most 64 rows a user, test users who are never among the training users. Losses are averaged over users:
logistic loss, or squared error over the variance of the test targets.
"""
LITTLE_DATA = f"""\
## Little data

Test loss over that of *one private number for everybody* that the whole budget bought; the goal is at most {MOST_LOSS}.
Losses are averaged over samples of training users before the ratio.

* Classification: the private base rate.
* Regression: the better one of `userdp.mean` of the targets, which needs no bounds and refuses where users are few, and
  a mean clipped into bounds around zero that hold all but a twentieth of the users, given for free.
* In brackets for regression: the ratio to a mean with the *oracle's* bounds around zero, those of the least error on
  the test users. No method has them, and with few users they are a way to know the answer.
"""
ODD_UNITS = f"""\
## Odd units

Excess loss beyond that of a fit without privacy, over that of the table as it is; both floored at {FLOOR}, the goal
is at most {MOST_CHANGE}. One sample of users, several fits. *A number* is the one that says most about the target, z
the same number with mean 0 and variance 1; *users' means* are those of that number, a feature that is constant within
users, and moving them by 1e6 is compared with adding them as they are. Where exp(3z) takes the place of z, the fit
without privacy gets it, too. The last lines are no oddities but controls, without a goal: what any column costs.
"""


def publish(rows: list[Row], missing: Sequence[tuple[Any, ...]] = ()) -> None:
    """Write the rows, with their ratios, and the page, which says what is missing."""
    add_ratios(rows)
    rows.sort(
        key=lambda row: (row["part"], row["table"], row["task"], row["users"], row["epsilon"], row["change"])
    )
    write_result("robustness", "make bench-robustness", {"rows": rows}, "\n".join(page(rows, missing)))


def add_ratios(rows: Iterable[Row]) -> None:
    """Add ``ratio`` to every row, and ``ratio_to_oracle`` or ``ratio_error`` where there is one."""
    rows = list(rows)
    bases = {(setting(row), row["change"]): row for row in rows if row["part"] == UNITS}
    for row in rows:
        if row["part"] == LITTLE:
            row |= ratios_to_constants(row["losses"], row["constants"])
        elif (base := bases.get((setting(row), compared_with(row["change"])))) is not None:
            row["ratio"], row["ratio_error"] = ratio_of_excess(excess(row), excess(base))


def setting(row: Row) -> Setting:
    return row["table"], row["task"], row["users"]


def excess(row: Row) -> list[float]:
    return [loss - row["reference"] for loss in row["losses"]]


def ratios_to_constants(losses: list[float], constants: Mapping[str, list[float | None]]) -> dict[str, float]:
    """Return the ratio of a mean loss to that of the best constant that always answers, and to the oracle's."""
    ours = np.mean(losses)
    answers = {name: [loss for loss in found if loss is not None] for name, found in constants.items()}
    known = {name: np.mean(some) for name, some in answers.items() if len(some) == len(constants[name])}
    oracle = known.pop(ORACLE, None)
    ratios = {"ratio": float(ours / min(known.values()))}
    return ratios if oracle is None else ratios | {"ratio_to_oracle": float(ours / oracle)}


def ratio_of_excess(changed: list[float], unchanged: list[float]) -> tuple[float, float]:
    """Return the ratio of two floored means, and its standard error, as if their noise were independent."""
    means = [max(float(np.mean(found)), FLOOR) for found in (changed, unchanged)]
    errors = [
        float(np.std(found, ddof=1)) / math.sqrt(len(found)) / mean if np.mean(found) > FLOOR else 0.0
        for found, mean in zip((changed, unchanged), means, strict=True)
    ]
    ratio = means[0] / means[1]
    return ratio, ratio * math.hypot(*errors)


def page(rows: list[Row], missing: Sequence[tuple[Any, ...]] = ()) -> list[str]:
    little = [row for row in rows if row["part"] == LITTLE]
    units = [row for row in rows if row["part"] == UNITS]
    return [
        "# Little data, odd units",
        "",
        PROTOCOL,
        *summary(little, units),
        "",
        *unmeasured(missing),
        LITTLE_DATA,
        *little_table(little),
        "",
        ODD_UNITS,
        *units_table(units),
    ]


def unmeasured(missing: Sequence[tuple[Any, ...]]) -> list[str]:
    """Say how many settings of which table are missing; ``make bench-robustness`` measures them."""
    if not missing:
        return []
    counts = Counter(f"{part} on {table}" for part, table, *_ in missing)
    return ["Not measured: " + ", ".join(f"{name} ({n} settings)" for name, n in counts.items()) + ".", ""]


def judged(units: list[Row]) -> list[Row]:
    return [row for row in units if row["change"] not in (AS_IT_IS, *CONTROLS)]


def summary(little: list[Row], units: list[Row]) -> list[str]:
    halts = sum(row["halts"] for row in little + units)
    fits = halts + sum(len(row["losses"]) for row in little + units)
    lines = ["| | settings | beyond the goal | worst | where |", "|---|---|---|---|---|"]
    for name, some, goal in (
        ("little data", little, MOST_LOSS),
        ("odd units", judged(units), MOST_CHANGE),
    ):
        beyond = [row for row in some if row["ratio"] > goal]
        worst = max(some, key=lambda row: float(row["ratio"]), default=None)
        if worst is not None:
            lines.append(
                f"| {name} | {len(some)} | {len(beyond)} | {worst['ratio']:.2f} | {described(worst)} |"
            )
    return [f"Fits that halted: {halts} of {fits:,}.", "", *lines]


def described(row: Row) -> str:
    words = f"{row['table']}, {row['task']}, n = {row['users']:,}, epsilon = {row['epsilon']:g}"
    return f"{words}, {row['change']}" if row["change"] else words


def little_table(rows: list[Row]) -> list[str]:
    """One line for each table, task and number of users; one column for each epsilon."""
    epsilons = sorted({row["epsilon"] for row in rows})
    found = {(setting(row), row["epsilon"]): row for row in rows}
    lines = [
        f"| table, task, users | {' | '.join(f'epsilon {epsilon:g}' for epsilon in epsilons)} |",
        "|---|" + "---|" * len(epsilons),
    ]
    for place in sorted({setting(row) for row in rows}):
        cells = (little_cell(found.get((place, epsilon))) for epsilon in epsilons)
        lines.append(f"| {place[0]}, {place[1]}, {place[2]:,} | {' | '.join(cells)} |")
    return lines


def little_cell(row: Row | None) -> str:
    if row is None:
        return "—"
    oracle = f" [{row['ratio_to_oracle']:.3f}]" if "ratio_to_oracle" in row else ""
    return marked(f"{row['ratio']:.3f}", row["ratio"] > MOST_LOSS) + oracle


def units_table(rows: list[Row]) -> list[str]:
    """One line for each change, controls last; one column for each table, task and number of users."""
    places = sorted({setting(row) for row in rows})
    found = {(row["change"], setting(row)): row for row in rows}
    errors = [row["ratio_error"] for row in rows if row.get("ratio_error")]
    heads = (f"{table}, {task}, {users:,}" for table, task, users in places)
    lines = [f"| change | {' | '.join(heads)} |", "|---|" + "---|" * len(places)]
    for change in [*(name for name in CHANGES if name not in (AS_IT_IS, *CONTROLS)), *CONTROLS]:
        cells = (units_cell(found.get((change, place))) for place in places)
        lines.append(f"| {change} | {' | '.join(cells)} |")
    plain = (found.get((AS_IT_IS, place)) for place in places)
    lines.append(
        "| *excess loss as it is* | "
        + " | ".join("—" if row is None else f"{np.mean(excess(row)):.4f}" for row in plain)
        + " |"
    )
    if errors:
        lines += ["", f"The median standard error of a ratio is {np.median(errors):.2f}."]
    return lines


def units_cell(row: Row | None) -> str:
    if row is None or "ratio" not in row:
        return "—"
    beyond = row["ratio"] > MOST_CHANGE and row["change"] not in CONTROLS
    return marked(f"{row['ratio']:.2f}", beyond)


def marked(text: str, beyond: bool) -> str:
    return f"**{text}**" if beyond else text
