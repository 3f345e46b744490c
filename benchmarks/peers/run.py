"""Objective x data x method: ``python -m benchmarks.peers.run`` measures what is missing and publishes.

A method is one file under ``methods`` and one entry in ``METHODS``; it runs in a process of its own, by the Python of
its environment. Rows are kept in ``results/peers.partial.json`` as they come, so an interrupted run resumes;
``--redo METHOD`` measures a method again.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.objective import evaluate, reference
from benchmarks.peers.problem import BUILD, DELTA, EPSILONS, TASKS, Problem, Table, make_problem
from benchmarks.peers.publish import publish
from benchmarks.peers.tables import prepare
from benchmarks.peers.tune import gdp_mu, load_tuned

ROOT = Path(__file__).parents[2]
PARTIAL = ROOT / "benchmarks" / "results" / "peers.partial.json"
Row = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """How a method is run: its environment, what it is given, and on which settings."""

    environment: str | None = None  # a folder of build/peers/environments; None is this one
    tuned: bool = True  # gets standardized features and the tuned clip, step and rounds
    tasks: tuple[str, ...] = TASKS
    users: tuple[int, ...] | None = None
    epsilons: tuple[float, ...] = EPSILONS
    tables: tuple[str, ...] | None = None
    seeds: int = 8

    def python(self) -> str:
        if self.environment is None:
            return sys.executable
        return str(BUILD / "environments" / self.environment / "bin" / "python")


SLOW = {"users": (500, 2_000), "epsilons": (1.0,), "seeds": 5}
METHODS = {
    "userdp_default": Method(tuned=False),
    "userdp_adaptive": Method(**SLOW),
    "jax_privacy_peer": Method("jax_privacy", users=(500, 2_000), seeds=5),
    "opacus_peer": Method("opacus", **SLOW),
    "pfl_peer": Method("pfl", **{**SLOW, "users": (500,)}),
    "pfl_adaptive": Method("pfl", **{**SLOW, "users": (500,)}),
    "diffprivlib_peer": Method("diffprivlib", tasks=("classification",), users=(500, 2_000), seeds=5),
}


def key(row: Row) -> tuple[Any, ...]:
    return row["table"], row["task"], row["users"], row["epsilon"], row["method"]


class Results:
    """The rows measured so far, on disk after every one."""

    def __init__(self) -> None:
        rows = json.loads(PARTIAL.read_text()) if PARTIAL.exists() else []
        self.rows: dict[tuple[Any, ...], Row] = {key(row): row for row in rows}

    def add(self, row: Row) -> None:
        self.rows[key(row)] = row
        PARTIAL.write_text(json.dumps(list(self.rows.values()), indent=1) + "\n")


def reference_loss(problem: Problem) -> float:
    """Test loss of the fit without privacy, computed once."""
    path = BUILD / "references.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    name = f"{problem.table} {problem.task} {problem.users}"
    if name not in known:
        known[name] = reference(problem).loss
        path.write_text(json.dumps(known, indent=1))
    return float(known[name])


def measured(problem: Problem, epsilon: float, method: str, tuned: bool, losses: Any, qualities: Any) -> Row:
    excess = np.asarray(losses) - reference_loss(problem)
    return {
        "table": problem.table,
        "task": problem.task,
        "users": problem.users,
        "epsilon": epsilon,
        "n_mu": round(problem.users * gdp_mu(epsilon), 1),
        "method": method,
        "tuned": tuned,
        "seeds": len(excess),
        "excess_loss": float(excess.mean()),
        "excess_loss_std": float(excess.std(ddof=1)),
        "auc" if problem.task == "classification" else "r2": float(np.mean(qualities)),
    }


def opponent_rows(problem: Problem) -> Iterator[Row]:
    """Rows of the vectorized opponent, whose losses came with its tuning."""
    names = {"zero": "tuned clipping", "base rate": "tuned clipping, base rate"}
    for row in load_tuned():
        if all(row[name] == getattr(problem, name) for name in ("table", "task", "users")):
            name = names[row["start"]]
            yield measured(problem, row["epsilon"], name, True, row["losses"], row["qualities"])


def run_method(name: str, problem: Problem, epsilon: float, label: str) -> Row | None:
    """Run one method on one problem in its own process; None where it has no tuned setting yet."""
    method = METHODS[name]
    data = problem.standardized() if method.tuned else problem
    settings: dict[str, Any] = {"clip": 0.0, "step": 0.0, "rounds": 0}
    if method.tuned:
        found = [
            row for row in load_tuned()
            if (row["table"], row["task"], row["users"], row["epsilon"], row["start"])
            == (problem.table, problem.task, problem.users, epsilon, "zero")
        ]  # fmt: skip
        if not found:
            return None
        settings = {name: found[0][name] for name in settings}
    jobs = BUILD / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    arrays = jobs / f"{label}-{'standard' if method.tuned else 'raw'}.npz"
    if not arrays.exists():
        for old in jobs.glob("*.npz"):
            old.unlink()
        train = data.train
        np.savez(
            arrays, X=train.X, y=train.y, offsets=train.offsets, test_X=data.test.X,
            names=data.names, n_numbers=data.n_numbers,
        )  # fmt: skip
    job = {"task": data.task, "epsilon": epsilon, "delta": DELTA, "seeds": list(range(method.seeds)), **settings}
    (jobs / "job.json").write_text(json.dumps(job))
    command = [method.python(), "-m", f"benchmarks.peers.methods.{name}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    subprocess.run(
        [*command, str(arrays), str(jobs / "job.json"), str(jobs / "out.npz")],
        check=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    with np.load(jobs / "out.npz") as out:
        scores = [evaluate(data.task, data.test, prediction) for prediction in out["prediction"]]
        row = measured(
            problem, epsilon, name, method.tuned, [s.loss for s in scores], [s.quality for s in scores]
        )
        row |= {name: round(float(out[name]), 6) for name in ("seconds_per_round", "peak_mb")}
    return row


def run(tables: list[str], methods: list[str], users: list[int] | None, results: Results) -> None:
    for name in tables:
        table = Table.load(name)
        for n, task in itertools.product(table.user_counts(), TASKS):
            if users and n not in users:
                continue
            problem = make_problem(table, task, n)
            for row in opponent_rows(problem):
                results.add(row)
            for (method, options), epsilon in itertools.product(METHODS.items(), EPSILONS):
                wanted = (
                    method in methods
                    and task in options.tasks
                    and epsilon in options.epsilons
                    and n in (options.users or (n,))
                    and name in (options.tables or (name,))
                )
                if wanted and (name, task, n, epsilon, method) not in results.rows:
                    found = run_method(method, problem, epsilon, f"{name}-{task}-{n}")
                    if found is not None:
                        results.add(found)
                        print(*key(found), f"{found['excess_loss']:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--users", nargs="*", type=int)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--redo", nargs="*", default=[], help="methods to measure again")
    parser.add_argument("--publish", action="store_true", help="write what is there, measure nothing")
    options = parser.parse_args()
    results = Results()
    if not options.publish:
        for row in [row for row in results.rows.values() if row["method"] in options.redo]:
            chosen = row["table"] in (options.tables or [row["table"]])
            if chosen and row["users"] in (options.users or [row["users"]]):
                del results.rows[key(row)]
        available = prepare()
        tables = [t for t in available if t in (options.tables or available)]
        run(tables, options.methods, options.users, results)
    publish(list(results.rows.values()))


if __name__ == "__main__":
    main()
