"""The paper's Table 1 as measurements: every system on the same problems, against n, m, d and epsilon.

Objective x data are the tasks of ``benchmarks.tasks``, methods the files of ``benchmarks.methods``. A system that
refuses or halts gets a row that says so. A run that was interrupted goes on where it stopped.
"""

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmarks.figures import panels
from benchmarks.measure import RESULTS, write_result, write_whole
from benchmarks.methods import methods
from benchmarks.methods.method import Method
from benchmarks.tables import table
from benchmarks.tasks import PROBLEMS, Size
from userdp.errors import InvalidInputError, NotConcentratedError, PrivacyWarning

BASE = Size(n=1_000, m=16, d=16, epsilon=1.0)
RANGES: dict[str, tuple[float, ...]] = {
    "n": (300, 1_000, 3_000, 10_000),
    "m": (1, 4, 16, 64),
    "d": (4, 16, 64, 256),
    "epsilon": (0.3, 1.0, 3.0, 9.0),
}
# Where looking at all subsets is still possible.
TINY = Size(n=20, m=16, d=4, epsilon=9.0)
SEEDS = 5


def sizes() -> list[Size]:
    """List every size once: the base, one number changed at a time, and the tiny one."""
    changed = [replace(BASE, **{axis: value}) for axis, values in RANGES.items() for value in values]  # type: ignore[arg-type]
    return list(dict.fromkeys([BASE, *changed, TINY]))


def experiments() -> Iterator[tuple[str, Size, str]]:
    """Name every row of the table, cheap sizes first."""
    for problem in PROBLEMS:
        for size in sorted(sizes(), key=lambda size: size.n * size.m * size.d):
            for method in methods():
                yield problem, size, method


def measure(problem: str, size: Size, method: Method) -> dict[str, Any]:
    """Run all seeds; a refusal is the same for each of them."""
    risks, start_risk, halted, began = [], 0.0, 0, time.perf_counter()
    for seed in range(SEEDS):
        task = PROBLEMS[problem](size, seed)
        start_risk += task.excess_risk(np.zeros(size.d)) / SEEDS
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                solution = method.solve(task, seed)
        except InvalidInputError as error:
            return {"status": "refused", "note": str(error)}
        except NotConcentratedError:
            halted += 1
            continue
        halted += solution.halted
        risks.append(task.excess_risk(solution.point))
    return {
        "status": "halted" if halted else "ran",
        "note": f"halted in {halted} of {SEEDS} runs" if halted else "",
        "excess_risk": float(np.exp(np.mean(np.log(risks)))) if risks else None,
        "all": risks,
        "start": start_risk,
        "seconds": (time.perf_counter() - began) / SEEDS,
    }


def main() -> None:
    """Measure every row; publish at the end."""
    partial = RESULTS / "table1.partial.json"
    done: dict[str, Any] = json.loads(partial.read_text()) if partial.exists() else {}
    known = methods()
    for problem, size, name in experiments():
        key = f"{problem}/{size.n}/{size.m}/{size.d}/{size.epsilon:g}/{name}"
        if key not in done:
            row = measure(problem, size, known[name])
            done[key] = {"problem": problem, **asdict(size), "method": name, **row}
            write_whole(partial, json.dumps(done))
            print(key, row["status"], row.get("excess_risk"), f"{row.get('seconds', 0):.1f} s", flush=True)
    publish(list(done.values()))
    partial.unlink()


def publish(rows: list[dict[str, Any]]) -> None:
    """Write the rows, their table and a figure for each problem."""
    known = methods()
    for problem in PROBLEMS:
        figure = panels([row for row in rows if row["problem"] == problem], known, asdict(BASE), RANGES)
        (RESULTS / f"table1-{problem}.svg").write_text(figure)
    result = {"base": asdict(BASE), "seeds": SEEDS, "rows": rows}
    write_result(
        "table1", "make bench-table1", result, table(rows, known, asdict(BASE), RANGES, asdict(TINY))
    )


if __name__ == "__main__":
    main()
