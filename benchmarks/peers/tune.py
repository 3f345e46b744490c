"""Tune the opponent on the test loss: ``python -m benchmarks.peers.tune``, on a CPU or whatever JAX finds.

The clip, step and rounds of the least mean test loss over noise seeds are kept in ``results/peers_tuned.json``, with
the losses on 8 fresh seeds. Settings already there are skipped, so an interrupted run resumes.

By default the lattice of clips (factor 2), steps (factor 2) and rounds (factor 3) is searched from where another
problem of about the same n mu ended (a coarse grid for the very first), by moving to the best neighbour until none is
better, with 6 seeds; where there are more than 2,000 users the search sees 2,000 of them, at the noise of all.
``--full`` runs the whole grid with 12 seeds on all users: minutes on an accelerator, hours on one core.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from benchmarks.measure import write_whole
from benchmarks.peers.objective import evaluate
from benchmarks.peers.opponent import Padded, Runs, descend, mean_loss
from benchmarks.peers.problem import (
    DATA,
    DELTA,
    EPSILONS,
    TABLES,
    TASKS,
    Array,
    Problem,
    Rows,
    Table,
    make_problem,
)

TUNED = Path(__file__).parents[1] / "results" / "peers_tuned.json"
CLIPS = {"classification": 2.0 ** np.arange(-6, 3), "regression": 2.0 ** np.arange(-5, 5)}
STEPS = {"classification": 2.0 ** np.arange(-5, 6), "regression": 2.0 ** np.arange(-8, 4)}
ROUNDS = (4, 12, 40, 120, 400)
FRESH_SEEDS = range(8)
MOST_SEARCHED = 2_000
# Where a search looks next, in steps of the lattice (clip, step, rounds).
_MOVES = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, -1, 0), (0, -1, 1), (1, 1, 0)]
MOVES = _MOVES + [(-c, -s, -r) for c, s, r in _MOVES]

Point = tuple[int, int, int]


@cache
def gdp_mu(epsilon: float, delta: float = DELTA) -> float:
    """Return the mu whose Gaussian mechanism is (epsilon, delta)-DP."""

    def excess(mu: float) -> float:
        return float(ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2) - delta)

    return float(brentq(excess, 1e-3, 10.0))


class Tuning:
    """The losses of one problem and start over the lattice, each point and epsilon measured once."""

    def __init__(self, problem: Problem, start: str, seeds: int, most_users: int) -> None:
        self.problem, self.start = problem, start
        data = problem.standardized()
        self.data = data
        self.train, self.test = Padded.of(first_users(data.train, most_users)), Padded.of(data.test)
        self.clips, self.steps = CLIPS[data.task], STEPS[data.task]
        self.shape = (len(self.clips), len(self.steps), len(ROUNDS))
        self.seeds = range(1_000, 1_000 + seeds)
        self.losses: dict[float, dict[Point, float]] = {epsilon: {} for epsilon in EPSILONS}

    def measure(self, wanted: Iterable[tuple[float, Point]]) -> None:
        """Measure the points that were not measured yet, those with the same rounds together."""
        new = {(e, p) for e, p in wanted if p not in self.losses[e] and self.is_inside(p)}
        for r in sorted({p[2] for _, p in new}):
            batch = sorted((e, p) for e, p in new if p[2] == r)
            columns = [(self.clips[p[0]], self.steps[p[1]], e, seed) for e, p in batch for seed in self.seeds]
            runs = as_runs(self.data, self.start, *(np.array(c) for c in zip(*columns, strict=True)))
            loss = mean_loss(self.data.task, self.test, descend(self.data.task, self.train, runs, ROUNDS[r]))
            for (e, p), value in zip(batch, loss.reshape(len(batch), -1).mean(axis=1), strict=True):
                self.losses[e][p] = float(value)

    def is_inside(self, point: Point) -> bool:
        return all(0 <= i < size for i, size in zip(point, self.shape, strict=True))

    def best(self, epsilon: float) -> Point:
        return min(self.losses[epsilon], key=self.losses[epsilon].__getitem__)

    def search_grid(self, stride: int = 1, rounds: tuple[int, ...] = tuple(range(len(ROUNDS)))) -> None:
        clips, steps = range(0, self.shape[0], stride), range(0, self.shape[1], stride)
        self.measure(itertools.product(EPSILONS, itertools.product(clips, steps, rounds)))

    def search_from(self, starts: dict[float, Point]) -> None:
        """Move to the best neighbour until none is better."""
        self.measure(starts.items())
        settled: dict[float, Point] = {}
        while settled != (here := {e: self.best(e) for e in EPSILONS}):
            settled = here
            self.measure((e, (c + i, s + j, r + k)) for e, (c, s, r) in here.items() for i, j, k in MOVES)

    def row(self, epsilon: float, search: str) -> dict[str, Any]:
        """Run the best point on fresh seeds and all users."""
        task, (c, s, r) = self.data.task, self.best(epsilon)
        clip, step, budget = (np.full(len(FRESH_SEEDS), v) for v in (self.clips[c], self.steps[s], epsilon))
        runs = as_runs(self.data, self.start, clip, step, budget, np.array(FRESH_SEEDS))
        theta = descend(task, Padded.of(self.data.train), runs, ROUNDS[r])
        scores = [evaluate(task, self.data.test, self.data.test.X @ column) for column in theta.T]
        return {
            "table": self.data.table,
            "task": task,
            "users": self.data.users,
            "epsilon": epsilon,
            "start": self.start,
            "clip": float(self.clips[c]),
            "step": float(self.steps[s]),
            "rounds": ROUNDS[r],
            "search": search,
            "tuning_seeds": len(self.seeds),
            "losses": [score.loss for score in scores],
            "qualities": [score.quality for score in scores],
        }


def first_users(rows: Rows, most: int) -> Rows:
    n = min(rows.n_users, most)
    return Rows(rows.X[: rows.offsets[n]], rows.y[: rows.offsets[n]], rows.offsets[: n + 1])


def as_runs(data: Problem, start: str, clip: Array, step: Array, epsilon: Array, seed: Array) -> Runs:
    """Set the noise of every run: sensitivity 2 C/n, for what the start leaves of the budget."""
    n = data.users
    mu = np.array([gdp_mu(float(e)) for e in epsilon])
    starts = np.zeros((data.train.X.shape[1], len(clip)), np.float32)
    if start == "base rate":
        share = base_rate_share(n * mu)
        std = 1 / (n * mu * np.sqrt(share))
        normal = np.array([np.random.default_rng([7, int(s)]).normal() for s in seed])
        least = np.clip(std, 1e-3, 0.5)
        p = np.clip(float(data.train.weights @ data.train.y) + std * normal, least, 1 - least)
        starts[-1], mu = np.log(p / (1 - p)), mu * np.sqrt(1 - share)
    clip, step, noise = (a.astype(np.float32) for a in (clip, step, 2 / (n * mu)))
    return Runs(clip, step, noise, seed.astype(np.uint32), starts)


def base_rate_share(n_mu: Array) -> Array:
    """Share of mu^2 that the private base rate gets; its sensitivity is 1/n."""
    return np.clip((20 / n_mu) ** 2, 0.01, 0.5)


def tune(problem: Problem, start: str, known: list[dict[str, Any]], full: bool) -> list[dict[str, Any]]:
    """Return the best setting for every epsilon, with its losses on fresh seeds."""
    if full:
        tuning = Tuning(problem, start, seeds=12, most_users=problem.users)
        tuning.search_grid()
        return [tuning.row(epsilon, "grid") for epsilon in EPSILONS]
    tuning = Tuning(problem, start, seeds=6, most_users=MOST_SEARCHED)
    hints = [row for row in known if row["task"] == problem.task]
    hints = [row for row in hints if row["table"] == problem.table] or hints
    if hints:
        tuning.search_from({e: nearest(tuning, hints, problem.users * gdp_mu(e)) for e in EPSILONS})
    else:
        coarse = Tuning(problem, start, seeds=3, most_users=MOST_SEARCHED)
        coarse.search_grid(stride=2, rounds=(1, 3))
        tuning.search_from({e: coarse.best(e) for e in EPSILONS})
    return [tuning.row(epsilon, "neighbours") for epsilon in EPSILONS]


def nearest(tuning: Tuning, hints: list[dict[str, Any]], n_mu: float) -> Point:
    """Point of the tuned setting whose effective number of users is nearest."""
    row = min(hints, key=lambda row: abs(np.log(row["users"] * gdp_mu(row["epsilon"]) / n_mu)))
    clip, step = tuning.clips.tolist(), tuning.steps.tolist()
    return clip.index(row["clip"]), step.index(row["step"]), ROUNDS.index(row["rounds"])


def load_tuned() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(TUNED.read_text()) if TUNED.exists() else []
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--full", action="store_true", help="the whole grid")
    options = parser.parse_args()
    rows = load_tuned()
    done = {(row["table"], row["task"], row["users"], row["start"]) for row in rows}
    for name in options.tables:
        if not (DATA / f"{name}.npz").exists():
            continue
        table = Table.load(name)
        for task, users in itertools.product(TASKS, table.user_counts()):
            for start in ("zero", "base rate") if task == "classification" else ("zero",):
                if (name, task, users, start) in done:
                    continue
                begin = time.perf_counter()
                rows += tune(make_problem(table, task, users), start, rows, options.full)
                write_whole(TUNED, json.dumps(rows, indent=1) + "\n")
                print(name, task, users, start, f"{time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
