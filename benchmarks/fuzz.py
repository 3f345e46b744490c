"""Throw bad input of every kind at the library, many cases of each; see :mod:`benchmarks.fuzzing`."""

import json
import os
import sys
import time
import warnings

from hypothesis import HealthCheck, Phase, given, settings

from benchmarks.fuzzing import FUZZERS, Fuzzer, folder
from benchmarks.measure import RESULTS, write_result


def run(fuzzer: Fuzzer, cases: int) -> dict[str, float]:
    """Run many cases; the first that breaks a promise is shrunk and raised."""
    taken = refused = 0

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(fuzzer.cases)
    def attack(case: object) -> None:
        nonlocal taken, refused
        start = time.perf_counter()
        if fuzzer.check(case):
            taken += 1
        else:
            refused += 1
        slowest[0] = max(slowest[0], time.perf_counter() - start)

    slowest = [0.0]
    attack()
    return {
        "cases": taken + refused,
        "taken": taken,
        "refused": refused,
        "slowest_seconds": round(slowest[0], 3),
    }


def main() -> None:
    """Run all kinds, or those named; other rows stay as they are."""
    warnings.simplefilter("ignore")
    words = sys.argv[1:]
    file = RESULTS / "fuzz.json"
    found = json.loads(file.read_text(encoding="utf-8"))["kinds"] if words and file.exists() else {}
    os.chdir(folder())
    for name, fuzzer in FUZZERS.items():
        if not words or any(word in name for word in words):
            found[name] = run(fuzzer, fuzzer.full_run)
            print(name, found[name], flush=True)
            _write({kind: found[kind] for kind in FUZZERS if kind in found})


def _write(found: dict[str, dict[str, float]]) -> None:
    total = sum(kind["cases"] for kind in found.values())
    rows = [
        f"| {name} | {kind['cases']:,} | {kind['taken']:,} | {kind['refused']:,} | {kind['slowest_seconds']:g} |"
        for name, kind in found.items()
    ]
    table = (
        "# Fuzzing: bad input of every kind\n\n"
        f"{total:,} cases: damaged files, bytes from nowhere and broken command lines. Each was either taken or "
        "refused in one line; none ended in a traceback, wrote something when it was refused, or lost budget. "
        "A damaged ledger that was taken reads as it was written, entry by entry. Some damaged parquet files end their "
        "reader's process, or make it print; none of these cases ended it, and the command line meets files in a "
        "process of their own first.\n\n"
        "| input | cases | taken | refused | slowest (s) |\n|---|---|---|---|---|\n" + "\n".join(rows)
    )
    write_result("fuzz", "make fuzz", {"cases": total, "kinds": found}, table, quiet=True)


if __name__ == "__main__":
    main()
