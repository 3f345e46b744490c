"""The defaults on tables beside the four they were made on: ``python -m benchmarks.holdout.run [--tables NAME ...]``.

They were kept apart at first; since then all of them helped to choose how numbers are looked at, so none is unseen.

The opponent is that of :mod:`benchmarks.peers`: clipped descent with clip, step and rounds tuned on the test loss, its
features standardized for free. Every figure is kept as it comes, so an interrupted run resumes; ``--tune`` stops after
the opponents (which an accelerator tunes in minutes), ``--redo`` fits the defaults again. Needs NumPy, SciPy,
scikit-learn and JAX alone, once ``benchmarks.holdout.tables`` has written the tables.
"""

import argparse
import itertools
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from benchmarks.holdout.publish import LOOKED_AT, publish
from benchmarks.measure import ONE_THREAD, RESULTS, ResumedRows
from benchmarks.peers.objective import constant, reference
from benchmarks.peers.problem import EPSILONS, TASKS, Problem, Table, make_problem

TABLES = tuple(name for names in LOOKED_AT.values() for name in names)
SEEDS = range(5)
Row = dict[str, Any]


def key(row: Row) -> tuple[Any, ...]:
    return row["table"], row["task"], row["users"], row["epsilon"]


def problem_of(table: str, task: str, users: int) -> Problem:
    return make_problem(Table.load(table), task, users)


def tune_opponent(table: str, task: str, users: int, kept: ResumedRows) -> None:
    """Keep one row for each epsilon: the opponent's best setting, and the losses that need no fit of ours."""
    from benchmarks.peers.tune import gdp_mu, tune

    problem = problem_of(table, task, users)
    exact, best_constant = reference(problem), constant(problem)
    for tuned in tune(problem, "zero", [], full=True):
        kept.add(
            {
                "table": table,
                "task": task,
                "users": users,
                "epsilon": tuned["epsilon"],
                "n_mu": round(users * gdp_mu(tuned["epsilon"]), 1),
                "reference": exact.loss,
                "constant": best_constant.loss,
                "clip": tuned["clip"],
                "step": tuned["step"],
                "rounds": tuned["rounds"],
                "tuned_losses": tuned["losses"],
            }
        )


def fit_defaults(table: str, task: str, users: int, epsilon: float) -> list[float]:
    """Fit the default estimator with every seed; return its test losses."""
    from benchmarks.defaults import default_losses

    problem = problem_of(table, task, users)
    return default_losses(task, problem.train, problem.test, problem.n_numbers, epsilon, SEEDS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--tune", action="store_true", help="only tune the opponents")
    parser.add_argument("--redo", action="store_true", help="fit the defaults again")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    kept = ResumedRows(RESULTS / "holdout.json", key)
    problems = [
        (table, task, users)
        for table in options.tables
        for task, users in itertools.product(TASKS, Table.load(table).user_counts())
    ]
    for problem in problems:
        if (*problem, EPSILONS[0]) not in kept.rows:
            tune_opponent(*problem, kept)
            print(*problem, "tuned", flush=True)
    if options.tune:
        return
    missing = [
        (*problem, epsilon)
        for problem in problems
        for epsilon in EPSILONS
        if options.redo or "losses" not in kept.rows[(*problem, epsilon)]
    ]
    os.environ.update(ONE_THREAD)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        jobs = {pool.submit(fit_defaults, *setting): setting for setting in missing}
        for job in as_completed(jobs):
            kept.add(kept.rows[jobs[job]] | {"losses": job.result()})
    publish([row for row in kept.rows.values() if "losses" in row])
    kept.are_published()


if __name__ == "__main__":
    main()
