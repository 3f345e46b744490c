"""What a method sees and hands back; it needs NumPy alone, so that every environment can import it.

``python -m benchmarks.peers.methods.NAME DATA.npz JOBS.json OUT.npz``: rows of training users and of the test set, a
list of budgets, and for peers the tuned clip, step and rounds of each; back come the predictions of the test rows for
every budget and seed.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Job:
    """One method's work on one problem; user u owns rows offsets[u] to offsets[u + 1]."""

    task: str
    epsilon: float
    delta: float
    clip: float
    step: float
    rounds: int
    X: Array
    y: Array
    offsets: Array
    test_X: Array  # noqa: N815
    names: Array
    n_numbers: int
    intercept: bool = True  # beside the constant feature, where a method has one of its own

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def groups(self) -> Array:
        return np.repeat(np.arange(self.n_users), np.diff(self.offsets))

    def padded(self) -> tuple[Array, Array, Array]:
        """Rows of shape (users, items, features), targets, and weights 1/m (0 for padding)."""
        items = np.diff(self.offsets)
        place = (self.groups, np.arange(len(self.y)) - np.repeat(self.offsets[:-1], items))
        X = np.zeros((self.n_users, items.max(), self.X.shape[1]), np.float32)
        y, weights = np.zeros((2, self.n_users, items.max()), np.float32)
        X[place], y[place], weights[place] = self.X, self.y, np.repeat(1 / items, items)
        return X, y, weights


@dataclass(frozen=True)
class Fit:
    """Predictions of the test rows (log odds, or targets), and what a round took."""

    prediction: Array
    seconds: float
    rounds: int


def serve(fit: Callable[[Job, int], Fit]) -> None:
    """Run a method on every budget and seed, and say what it took.

    A round's and a fit's time are the least over the seeds but the first, whose fit also compiles and calibrates; that
    one's time is kept beside them. ``start_mb`` is resident before the data are read: Python and the method's imports.
    """
    start_mb = resident_megabytes("VmRSS")
    data_path, jobs_path, out_path = sys.argv[1:]
    with open(jobs_path) as file:
        settings = json.load(file)
    with np.load(data_path) as arrays:
        data = {key: arrays[key] for key in ("X", "y", "offsets", "test_X", "names")}
        n_numbers = int(arrays["n_numbers"])
    jobs = [Job(**job, **data, n_numbers=n_numbers) for job in settings["jobs"]]
    first = settings["first_seed"]
    seeds = range(first, first + settings["seeds"])
    runs = [[timed(partial(fit, job, seed)) for seed in seeds] for job in jobs]
    np.savez(
        out_path,
        prediction=np.array([[f.prediction for f, _ in row] for row in runs], np.float32),
        seconds_per_round=np.array([min(f.seconds / f.rounds for f, _ in row[1:] or row) for row in runs]),
        first_fit_seconds=np.array([row[0][1] for row in runs]),
        fit_seconds=np.array([min(seconds for _, seconds in row[1:] or row) for row in runs]),
        start_mb=start_mb,
        peak_mb=resident_megabytes("VmHWM"),
    )


def resident_megabytes(name: str) -> float:
    """Resident memory of this process, now or at its most; ``getrusage`` would count its parent's (Linux only)."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return int(found[1]) / 1e3 if found else float("nan")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start
