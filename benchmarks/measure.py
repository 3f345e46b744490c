"""Timing as ratios inside one run, and committed results."""

import json
import os
import platform
import resource
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# The environment of a process that fits on one core, one of many at a time.
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: the run may be killed here, and others may be reading."""
    unfinished = path.with_name(f"new.{path.name}.partial.json")  # a name that git ignores
    unfinished.write_text(text)
    unfinished.replace(path)


class ResumedRows:
    """Rows of a long run, on disk after every one: an interrupted run resumes.

    They are kept beside ``published``; without such a file the published rows are where a run starts.
    """

    def __init__(
        self, published: Path, key: Callable[[dict[str, Any]], tuple[Any, ...]], fresh: bool = False
    ) -> None:
        self._partial, self._key = published.with_suffix(".partial.json"), key
        found: list[dict[str, Any]] = []
        if self._partial.exists() and not fresh:
            found = json.loads(self._partial.read_text())
        elif published.exists() and not fresh:
            found = json.loads(published.read_text())["rows"]
        self.rows = {key(row): row for row in found}

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.rows[self._key(row)] = row
        write_whole(self._partial, json.dumps(list(self.rows.values()), indent=1) + "\n")

    def are_published(self) -> None:
        """Forget what was kept beside the published rows."""
        self._partial.unlink(missing_ok=True)


def interleaved_seconds(
    jobs: Mapping[str, Callable[[], object]], repeats: int = 7, *, twice: bool = False
) -> dict[str, float]:
    """Best time of each job; the jobs take turns, so that a noisy neighbour hits all of them alike.

    ``twice`` runs a job before its time is taken: what another one left in the caches to be written is not its cost.
    """
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(repeats):
        for name, job in jobs.items():
            if twice:
                job()
            start = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def others_share(job: Callable[[], Any]) -> tuple[Any, float | None]:
    """Run a job; return its result, and which share of the processor's time other processes took meanwhile (Linux).

    Timings of a machine that others use say little; the share is kept beside them.
    """
    before = _busy_seconds()
    start = time.perf_counter()
    result = job()
    wall, after = time.perf_counter() - start, _busy_seconds()
    if before is None or after is None:
        return result, None
    return result, max(0.0, (after - before) / (wall * (os.cpu_count() or 1)))


def _busy_seconds() -> float | None:
    """Seconds that all processors were busy, less those of this process and of its children that have ended."""
    file = Path("/proc/stat")
    if not file.exists():
        return None
    user, nice, system, _idle, _wait, irq, softirq = map(int, file.read_text().split()[1:8])
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    every = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return every - sum(usage.ru_utime + usage.ru_stime for usage in own)


def peak_megabytes(job: Callable[[], object]) -> float:
    """Largest memory that NumPy held at once during the job, beyond what was there before."""
    tracemalloc.start()
    job()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def write_result(name: str, command: str, result: dict[str, Any], table: str, *, quiet: bool = False) -> None:
    """Commit-ready JSON and Markdown, with the command that made them."""
    record = {
        "command": command,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        **result,
    }
    RESULTS.mkdir(exist_ok=True)
    write_whole(RESULTS / f"{name}.json", json.dumps(record, indent=2) + "\n")
    write_whole(RESULTS / f"{name}.md", f"{table.rstrip()}\n\nMade by `{command}`.\n")
    if not quiet:
        print(table)
