"""What a fit takes, for nothing else running: ``python -m benchmarks.peers.timing``, by itself on the machine.

Every method in turn on the same two problems at epsilon = 1, in two processes each, of which the lesser figures count;
what was timed before is kept in ``results/peers_timing.json`` and skipped, ``--redo METHOD`` times a method again.
"""

import argparse
import json
from typing import Any

from benchmarks.measure import others_share, write_whole
from benchmarks.peers.problem import DATA, Table, make_problem
from benchmarks.peers.publish import TIMINGS, load_timings
from benchmarks.peers.run import METHODS, execute, jobs_of, runnable
from benchmarks.peers.tables import prepare

TABLES = ("flights", "chem97")
TASK, USERS, EPSILON, SEEDS, PROCESSES = "classification", 500, 1.0, 3, 2
FIELDS = ("seconds_per_round", "fit_seconds", "first_fit_seconds", "start_mb", "peak_mb")
Timing = dict[str, Any]


def measure(name: str, table: str) -> Timing:
    """Time one method on one table."""
    problem = make_problem(Table.load(table), TASK, USERS)
    method = METHODS[name]
    # What a grid would choose hardly matters to the time: the middle of it stands for all.
    chosen = method.grid[len(method.grid) // 2] if method.grid else {}
    jobs = [job | chosen for job in jobs_of(method, problem, [EPSILON])]
    data = method.prepared(problem)
    outs, others = others_share(lambda: [execute(name, data, jobs, SEEDS) for _ in range(PROCESSES)])
    figures = {field: min(float(out[field].ravel()[0]) for out in outs) for field in FIELDS}
    setting = {"table": table, "task": TASK, "users": USERS, "epsilon": EPSILON, "method": name}
    return setting | figures | {"others": others}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--redo", nargs="*", default=[], help="methods to time again")
    options = parser.parse_args()
    prepare()
    methods = runnable(options.methods)
    rows = [
        row
        for row in load_timings()
        if row["method"] not in options.redo or row["table"] not in options.tables
    ]
    done = {(row["table"], row["method"]) for row in rows}
    for table in options.tables:
        for name in methods:
            if (table, name) not in done and (DATA / f"{table}.npz").exists():
                rows.append(measure(name, table))
                write_whole(TIMINGS, json.dumps(rows, indent=1) + "\n")
                print(table, name, {field: round(rows[-1][field], 6) for field in FIELDS}, flush=True)


if __name__ == "__main__":
    main()
