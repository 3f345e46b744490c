"""Would other constants have been better? Each is changed by itself, and the defaults are fitted again.

The changes are in ``sensitivity.toml``. Each is made in a copy of the sources, which processes of their own import. The
training users are drawn anew (``sensitivity_fits.py``) from the tables of the other suites: other draws, partly of the
same users, and the same test users.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import ONE_THREAD, write_result
from benchmarks.mutants import ROOT, SOURCES, replaced_once
from benchmarks.peers.objective import FLOOR
from benchmarks.peers.problem import TABLES, TASKS, Array
from benchmarks.sensitivity_fits import EPSILONS, FITS, SAMPLES

CATALOGUE = Path(__file__).with_suffix(".toml")
USERS = (500, 1_000)
AS_IT_IS = "as it is"
# A setting is (table, task, users, epsilon); its losses are one per fit.
Setting = tuple[str, str, int, float]
Losses = dict[Setting, Array]


def with_change(change: dict[str, str], tree: Path) -> Path:
    """Copy the sources and change one constant."""
    shutil.copytree(ROOT / SOURCES, tree / "userdp", ignore=shutil.ignore_patterns("__pycache__"))
    if "file" in change:
        file = tree / "userdp" / change["file"]
        changed = replaced_once(file.read_text(), change["old"], change["new"], change["file"])
        file.write_text(changed)
    return tree


def fits(sources: Path, table: str, task: str, users: int) -> Losses:
    """Fit in a process of one thread that imports these sources."""
    environment = {
        **os.environ,
        **ONE_THREAD,
        "PYTHONPATH": f"{sources}{os.pathsep}{ROOT}",
    }
    command = [sys.executable, "-m", "benchmarks.sensitivity_fits", table, task, str(users)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    return {(table, task, users, float(epsilon)): np.array(losses) for epsilon, losses in found.items()}


def measure(changes: list[dict[str, str]], processes: int) -> dict[str, Losses]:
    """Fit everything with every change."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        trees = {
            change["name"]: with_change(change, Path(folder) / str(i)) for i, change in enumerate(changes)
        }
        jobs = [
            (name, pool.submit(fits, tree, table, task, users))
            for users in reversed(USERS)
            for table in TABLES
            for task in TASKS
            for name, tree in trees.items()
        ]
        found: dict[str, Losses] = {name: {} for name in trees}
        for name, job in jobs:
            found[name] |= job.result()
        return found


def log_ratio(changed: Losses, usual: Losses, settings: list[Setting], fits: Array) -> float:
    """Mean over settings of the logarithm of the ratio of two excess losses, over some of the fits."""

    def mean(losses: Losses, setting: Setting) -> float:
        return max(float(losses[setting][fits].mean()), FLOOR)

    return float(np.mean([math.log(mean(changed, setting) / mean(usual, setting)) for setting in settings]))


def ratios(changed: Losses, usual: Losses) -> dict[str, Any]:
    """Geometric means of ratios, and by how much the one over everything scatters (a jackknife over the fits)."""
    every, all_fits = list(usual), np.arange(SAMPLES * FITS)
    left_out = [log_ratio(changed, usual, every, np.delete(all_fits, i)) for i in all_fits]
    found = {
        "ratio": math.exp(log_ratio(changed, usual, every, all_fits)),
        "standard_error": math.sqrt((len(all_fits) - 1) * float(np.var(left_out))),
    }
    for kind, place in [(name, 0) for name in TABLES] + [(name, 1) for name in TASKS]:
        some = [setting for setting in every if setting[place] == kind]
        found[kind] = math.exp(log_ratio(changed, usual, some, all_fits))
    return found


def publish(found: dict[str, Losses]) -> None:
    rows = {name: ratios(losses, found[AS_IT_IS]) for name, losses in found.items() if name != AS_IT_IS}
    kinds = (*TABLES, *TASKS)
    budgets = ", ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    lines = [
        "# Other constants",
        "",
        "Excess test loss of the default estimators with one constant changed, over that with all constants as they "
        f"are: geometric means over four tables, two tasks, {' and '.join(f'{n:,}' for n in USERS)} users, epsilon "
        f"{budgets}; {SAMPLES} draws of training users, {FITS} fits of each; both losses floored at {FLOOR}. The draws "
        "are other ones than those of the other suites, from the same tables and so partly of the same users; the test "
        "users are the same. Above 1 the change is worse. The standard error is that of the first column.",
        "",
        f"| changed | all | standard error | {' | '.join(kinds)} |",
        f"|---|---|---|{'---|' * len(kinds)}",
        *(
            f"| {name} | {row['ratio']:.3f} | {row['standard_error']:.3f} "
            f"| {' | '.join(f'{row[kind]:.2f}' for kind in kinds)} |"
            for name, row in rows.items()
        ),
    ]
    write_result("sensitivity", "make bench-sensitivity", {"changes": rows}, "\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    changes = tomllib.loads(CATALOGUE.read_text())["change"]
    publish(measure([{"name": AS_IT_IS}, *changes], parser.parse_args().processes))


if __name__ == "__main__":
    main()
