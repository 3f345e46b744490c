"""Objective x data x method: ``python -m benchmarks.peers.run`` measures what is missing and publishes.

A method is one file under ``methods`` and one entry in ``METHODS``; it runs in a process of its own, by the Python of
its environment. Rows are kept in ``results/peers.partial.json`` as they come, so an interrupted run resumes; without
that file the committed rows are where it starts. Rows at a clip, step or rounds that are no longer those of
``results/peers_tuned.json`` count as missing. ``--redo METHOD`` measures a method again, ``--fresh`` everything.
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
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, ResumedRows, write_whole
from benchmarks.peers import means
from benchmarks.peers.objective import evaluate, reference
from benchmarks.peers.problem import BUILD, DATA, DELTA, EPSILONS, TASKS, Array, Problem, Table, make_problem
from benchmarks.peers.publish import OPPONENT, WITH_BASE_RATE, publish
from benchmarks.peers.tables import prepare
from benchmarks.peers.tune import gdp_mu, load_tuned

ROOT = Path(__file__).parents[2]
PUBLISHED, REFERENCES = RESULTS / "peers.json", RESULTS / "peers_references.json"
Row = dict[str, Any]
TUNING_SEEDS = 8
SETTING = ("clip", "step", "rounds")


@dataclass(frozen=True)
class Method:
    """How a method is run: its environment, what it is given, and on which settings."""

    environment: str | None = None  # a folder of build/peers/environments; None is this one
    tuned: bool = True  # gets the clip, step and rounds of the tuned opponent, or the best of its grid
    grid: tuple[Row, ...] = ()  # settings to choose from, where the opponent's has no meaning
    standardized: bool = True  # gets features and targets standardized by their true moments
    tasks: tuple[str, ...] = TASKS
    seeds: int = 5

    def prepared(self, problem: Problem) -> Problem:
        return problem.standardized() if self.standardized else problem

    def python(self) -> str:
        if self.environment is None:
            return sys.executable
        return str(BUILD / "environments" / self.environment / "bin" / "python")


# Bounds on rows in medians of their norms, and regularizations C.
DIFFPRIVLIB_GRID = tuple(
    {"intercept": intercept, "clip": bound, "step": C}
    for intercept in (True, False)
    for bound in (0.001, 0.01, 0.1, 1.0)
    for C in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
)

METHODS = {
    "userdp_default": Method(tuned=False, standardized=False),
    "userdp_adaptive": Method(),
    "jax_privacy_peer": Method("jax_privacy"),
    "opacus_peer": Method("opacus"),
    "opacus_adaptive": Method("opacus"),
    "pfl_peer": Method("pfl"),
    "pfl_adaptive": Method("pfl"),
    "diffprivlib_peer": Method("diffprivlib", tasks=("classification",), grid=DIFFPRIVLIB_GRID),
}


def key(row: Row) -> tuple[Any, ...]:
    return row["table"], row["task"], row["users"], row["epsilon"], row["method"]


def reference_loss(problem: Problem) -> float:
    """Test loss of the fit without privacy, computed once: with many users it takes minutes."""
    known = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}
    name = f"{problem.table} {problem.task} {problem.users}"
    if name not in known:
        known[name] = reference(problem).loss
        write_whole(REFERENCES, json.dumps(known, indent=1, sort_keys=True) + "\n")
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
    names = {"zero": OPPONENT, "base rate": WITH_BASE_RATE}
    for row in load_tuned():
        if all(row[name] == getattr(problem, name) for name in ("table", "task", "users")):
            name = names[row["start"]]
            found = measured(problem, row["epsilon"], name, True, row["losses"], row["qualities"])
            yield found | {field: row[field] for field in SETTING}


def jobs_of(method: Method, problem: Problem, epsilons: list[float]) -> list[Row]:
    """Budgets, with the opponent's setting for those that get it; where it was not tuned there is no job."""
    blank = {"task": problem.task, "delta": DELTA, "clip": 0.0, "step": 0.0, "rounds": 0}
    if method.grid or not method.tuned:
        return [{**blank, "epsilon": epsilon} for epsilon in epsilons]
    wanted = (problem.table, problem.task, problem.users, "zero")
    return [
        blank | {name: row[name] for name in ("epsilon", *SETTING)}
        for row in load_tuned()
        if (row["table"], row["task"], row["users"], row["start"]) == wanted and row["epsilon"] in epsilons
    ]


def execute(
    name: str, problem: Problem, jobs: list[Row], seeds: int, first_seed: int = 0
) -> dict[str, Array]:
    """Run one method on one problem in a process of its own, by the Python of its environment."""
    train = problem.train
    with TemporaryDirectory(dir=BUILD) as folder:
        paths = [Path(folder) / file for file in ("data.npz", "jobs.json", "out.npz")]
        np.savez(
            paths[0],
            X=train.X,
            y=train.y,
            offsets=train.offsets,
            test_X=problem.test.X,
            names=problem.names,
            n_numbers=problem.n_numbers,
        )
        paths[1].write_text(json.dumps({"jobs": jobs, "seeds": seeds, "first_seed": first_seed}))
        subprocess.run(
            [METHODS[name].python(), "-m", f"benchmarks.peers.methods.{name}", *map(str, paths)],
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            cwd=ROOT,
        )
        with np.load(paths[2]) as out:
            return dict(out)


def best_of_grid(name: str, data: Problem, job: Row) -> Row:
    """Choose a setting of the method's grid on the test loss, over noise seeds of its own."""
    jobs = [job | setting for setting in METHODS[name].grid]
    out = execute(name, data, jobs, TUNING_SEEDS, first_seed=1_000)
    losses = [np.mean([evaluate(data.task, data.test, p).loss for p in row]) for row in out["prediction"]]
    return jobs[int(np.argmin(losses))]


def run_method(name: str, problem: Problem, epsilons: list[float]) -> Iterator[Row]:
    """Yield the rows of one method on one problem."""
    method = METHODS[name]
    data = method.prepared(problem)
    jobs = jobs_of(method, problem, epsilons)
    if method.grid:
        jobs = [best_of_grid(name, data, job) for job in jobs]
    if not jobs:
        return
    out = execute(name, data, jobs, method.seeds)
    for job, predictions, seconds in zip(jobs, out["prediction"], out["seconds_per_round"], strict=True):
        scores = [evaluate(data.task, data.test, prediction) for prediction in predictions]
        losses, qualities = [s.loss for s in scores], [s.quality for s in scores]
        yield measured(problem, job["epsilon"], name, method.tuned, losses, qualities) | {
            **chosen(method, job),
            "seconds_per_round": round(float(seconds), 6),
            "peak_mb": round(float(out["peak_mb"])),
        }


def chosen(method: Method, job: Row) -> Row:
    """Return what was tuned for a job: the opponent's setting, a point of the method's grid, or nothing."""
    if method.grid:
        return {field: job[field] for field in method.grid[0]}
    return {field: job[field] for field in SETTING} if method.tuned else {}


def forget_other_settings(results: ResumedRows, problem: Problem) -> None:
    """Drop a problem's rows of methods that take the opponent's setting but were measured at another than today's."""
    for name, method in METHODS.items():
        if method.tuned and not method.grid:
            for job in jobs_of(method, problem, list(EPSILONS)):
                place = (problem.table, problem.task, problem.users, job["epsilon"], name)
                if any(results.rows.get(place, job).get(field) != job[field] for field in SETTING):
                    del results.rows[place]


def runnable(names: list[str]) -> list[str]:
    """Keep the methods whose environment is there, and say which are not."""
    there = {name: Path(METHODS[name].python()).exists() for name in names if name in METHODS}
    for name in [name for name, found in there.items() if not found]:
        print(f"{name}: no {METHODS[name].python()}, left out (make bench-peers builds it)")
    return [name for name, found in there.items() if found]


def run(tables: list[str], methods: list[str], options: argparse.Namespace, results: ResumedRows) -> None:
    for name in tables:
        table = Table.load(name)
        for n, task in itertools.product(table.user_counts(), options.tasks or TASKS):
            if options.users and n not in options.users:
                continue
            problem = make_problem(table, task, n)
            for row in opponent_rows(problem):
                results.add(row)
            forget_other_settings(results, problem)
            for method in methods:
                missing = [e for e in options.epsilons if (name, task, n, e, method) not in results.rows]
                if missing and task in METHODS[method].tasks:
                    for row in run_method(method, problem, missing):
                        results.add(row)
                        print(*key(row), f"{row['excess_loss']:.4f}", flush=True)


def forget(results: ResumedRows, options: argparse.Namespace) -> None:
    """Drop the rows that are to be measured again."""
    chosen = {
        "table": options.tables,
        "task": options.tasks,
        "users": options.users,
        "epsilon": options.epsilons,
    }
    for row in [row for row in results.rows.values() if row["method"] in options.redo]:
        if all(row[name] in wanted for name, wanted in chosen.items() if wanted):
            del results.rows[key(row)]


def run_means(tables: list[str], results: ResumedRows) -> None:
    wide = ["jester_wide"] if (DATA / "jester_wide.npz").exists() and "jester" in tables else []
    for label, x in means.problems([*tables, *wide]):
        for name in means.keys(label, x):
            if name not in results.rows:
                for row in means.mean_rows(label, x, name[3]):
                    results.add(row)
                print(*name, results.rows[name]["ratio_to_best_ball"], flush=True)


def unmeasured(results: ResumedRows) -> dict[str, list[str]]:
    """List, for every method, the problems on which ``METHODS`` asks for rows that are not there."""
    problems = sorted({(row["table"], row["task"], row["users"]) for row in load_tuned()})
    return {
        name: [
            f"{table} {task} {users:,}"
            for table, task, users in problems
            if task in method.tasks
            and any((table, task, users, epsilon, name) not in results.rows for epsilon in EPSILONS)
        ]
        for name, method in METHODS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--users", nargs="*", type=int)
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--methods", nargs="*", default=[*METHODS, "userdp.mean"])
    parser.add_argument("--redo", nargs="*", default=[], help="methods to measure again")
    parser.add_argument("--fresh", action="store_true", help="forget every row")
    parser.add_argument("--publish", action="store_true", help="write what is there, measure nothing")
    options = parser.parse_args()
    results = ResumedRows(PUBLISHED, key, options.fresh)
    if options.fresh:
        REFERENCES.unlink(missing_ok=True)
    if not options.publish:
        forget(results, options)
        available = prepare()
        tables = [t for t in available if t in (options.tables or available)]
        run(tables, runnable(options.methods), options, results)
        if "userdp.mean" in options.methods:
            run_means(tables, results)
    publish(list(results.rows.values()), unmeasured(results))
    results.are_published()


if __name__ == "__main__":
    main()
