"""Measure what is missing, publish: ``python -m benchmarks.robustness.run``.

Rows are kept in ``results/robustness.partial.json`` as they come, so an interrupted run resumes; without that file the
committed rows are where it starts. ``--fresh`` forgets them.
"""

import argparse
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import userdp
from benchmarks.measure import RESULTS, ResumedRows
from benchmarks.peers.objective import evaluate
from benchmarks.peers.problem import DELTA, TABLES, TASKS
from benchmarks.peers.tables import prepare
from benchmarks.peers.tune import gdp_mu
from benchmarks.robustness import constants
from benchmarks.robustness.changes import CHANGES, changed, reference_of
from benchmarks.robustness.publish import LITTLE, ORACLE, UNITS, publish
from benchmarks.robustness.sample import Sample, draw

PUBLISHED = RESULTS / "robustness.json"
Row = dict[str, Any]

# Little data: users with the fits of each sample (the fewer, the heavier the tail of the losses), budgets, and samples.
USERS, EPSILONS, SAMPLES = {200: 6, 500: 4, 2_000: 1}, (0.05, 0.1, 0.3, 1.0), 10
# Odd units: users at epsilon 1, and fits of one sample. Jester is like retail, and five times as large.
UNIT_TABLES, UNIT_USERS, UNIT_EPSILON, FITS = ("flights", "retail", "chem97"), (500, 2_000), 1.0, 24


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("part", "table", "task", "users", "epsilon", "change"))


def experiments(tables: Iterable[str] = TABLES) -> Iterator[tuple[Any, ...]]:
    """List the keys of all rows."""
    yield from itertools.product([LITTLE], tables, TASKS, USERS, EPSILONS, [""])
    units = [table for table in tables if table in UNIT_TABLES]
    yield from itertools.product([UNITS], units, TASKS, UNIT_USERS, [UNIT_EPSILON], CHANGES)


def loss_of_fit(sample: Sample, epsilon: float, seed: int) -> float | None:
    """Test loss of the default estimator; None if it halts."""
    classify, train = sample.task == "classification", sample.train
    Estimator = userdp.LogisticRegression if classify else userdp.LinearRegression
    model = Estimator(epsilon=epsilon, delta=DELTA, random_state=seed)
    y, groups, test = train.y.astype(int) if classify else train.y, train.rows.groups, sample.test
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(train.frame, y, groups=groups)
            predicted = model.decision_function(test.frame) if classify else model.predict(test.frame)
    except userdp.UserDPError:
        return None
    return evaluate(sample.task, test.rows, np.asarray(predicted)).loss


def row_of(part: str, sample: Sample, epsilon: float, change: str, losses: list[float | None]) -> Row:
    found = [loss for loss in losses if loss is not None]
    return {
        "part": part,
        "table": sample.table,
        "task": sample.task,
        "users": sample.users,
        "epsilon": epsilon,
        "n_mu": round(sample.users * gdp_mu(epsilon), 1),
        "change": change,
        "halts": len(losses) - len(found),
        "losses": [round(loss, 6) for loss in found],
    }


def constant_losses(sample: Sample, epsilon: float, seed: int) -> dict[str, float | None]:
    if sample.task == "classification":
        return {"base rate": constants.base_rate_loss(sample, epsilon, seed)}
    return {
        "userdp.mean": constants.mean_loss(sample, epsilon, seed),
        "good bounds": constants.bounded_loss(sample, epsilon),
        ORACLE: constants.oracle_loss(sample, epsilon),
    }


def little_data(table: str, known: dict[tuple[Any, ...], Row], n_samples: int) -> Iterator[Row]:
    """Yield a row for every task, number of users and epsilon that is not known."""
    for task, n in itertools.product(TASKS, USERS):
        missing = [e for e in EPSILONS if (LITTLE, table, task, n, e, "") not in known]
        if not missing:
            continue
        samples = [draw(table, task, n, seed) for seed in range(n_samples)]
        for epsilon in missing:
            pairs = enumerate(itertools.product(samples, range(USERS[n])))
            losses = [loss_of_fit(sample, epsilon, seed) for seed, (sample, _) in pairs]
            answers = [constant_losses(sample, epsilon, seed) for seed, sample in enumerate(samples)]
            rivals = {name: [answer[name] for answer in answers] for name in answers[0]}
            yield row_of(LITTLE, samples[0], epsilon, "", losses) | {"constants": rivals}


def odd_units(table: str, known: dict[tuple[Any, ...], Row], n_fits: int) -> Iterator[Row]:
    """Yield a row for every task, number of users and change that is not known."""
    for task, n in itertools.product(TASKS, UNIT_USERS):
        missing = [c for c in CHANGES if (UNITS, table, task, n, UNIT_EPSILON, c) not in known]
        if not missing:
            continue
        sample = draw(table, task, n, 0)
        references = {
            name: changed(sample, name).reference_loss() for name in {reference_of(c) for c in missing}
        }
        for change in missing:
            table_now = changed(sample, change)
            losses = [loss_of_fit(table_now, UNIT_EPSILON, seed) for seed in range(n_fits)]
            reference = {"reference": round(references[reference_of(change)], 6)}
            yield row_of(UNITS, sample, UNIT_EPSILON, change, losses) | reference


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--parts", nargs="*", default=[LITTLE, UNITS])
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of users, for little data")
    parser.add_argument("--fits", type=int, default=FITS, help="fits per change of units")
    parser.add_argument("--fresh", action="store_true", help="forget every row")
    parser.add_argument("--publish", action="store_true", help="write what is there, measure nothing")
    options = parser.parse_args()
    results = ResumedRows(PUBLISHED, key, options.fresh)
    if not options.publish:
        available = prepare()
        for table in [t for t in available if t in (options.tables or available)]:
            known = results.rows
            if LITTLE in options.parts:
                measure(little_data(table, known, options.samples), results)
            if UNITS in options.parts and table in UNIT_TABLES:
                measure(odd_units(table, known, options.fits), results)
    publish(
        list(results.rows.values()), [setting for setting in experiments() if setting not in results.rows]
    )
    results.are_published()


def measure(rows: Iterator[Row], results: ResumedRows) -> None:
    for row in rows:
        results.add(row)
        print(*key(row), f"{np.mean(row['losses']):.4f}", f"{row['halts']} halts", flush=True)


if __name__ == "__main__":
    main()
