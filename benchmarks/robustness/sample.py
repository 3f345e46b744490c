"""What is fitted: some users of a table, their features in float64, and test users who are never among them."""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers.objective import reference
from benchmarks.peers.problem import Array, Problem, Rows, Table

if TYPE_CHECKING:
    import polars as pl

MOST_TEST_USERS = 800


@cache
def load(name: str) -> Table:
    return Table.load(name)


@dataclass(frozen=True)
class Part:
    """Rows of some users: numbers in float64, so that a shift by a million loses nothing, and booleans."""

    numbers: Array
    booleans: Array
    y: Array
    offsets: Array

    @cached_property
    def rows(self) -> Rows:
        return Rows(np.hstack([self.numbers, self.booleans]), self.y, self.offsets)

    @cached_property
    def frame(self) -> "pl.DataFrame":
        """The features, with the types that tell numbers from booleans."""
        import polars as pl

        numbers = [pl.Series(f"number {i}", column) for i, column in enumerate(self.numbers.T)]
        return pl.DataFrame(
            numbers + [pl.Series(f"boolean {i}", column) for i, column in enumerate(self.booleans.T)]
        )


@dataclass(frozen=True)
class Sample:
    """Training and test users of one table and task."""

    table: str
    task: str
    train: Part
    test: Part

    @property
    def users(self) -> int:
        return len(self.train.offsets) - 1

    def reference_loss(self) -> float:
        """Test loss of the fit without privacy on the same users."""
        train, test = self.train.rows, self.test.rows
        names, n_numbers = np.array([]), self.train.numbers.shape[1]
        return reference(Problem(self.table, self.task, self.users, train, test, names, n_numbers)).loss

    def with_columns(self, numbers: Array, booleans: Array) -> "Sample":
        """Take other features, given for training and test rows one after the other."""
        n = len(self.train.y)
        return replace(
            self,
            train=replace(self.train, numbers=numbers[:n], booleans=booleans[:n]),
            test=replace(self.test, numbers=numbers[n:], booleans=booleans[n:]),
        )


def draw(name: str, task: str, users: int, seed: int) -> Sample:
    """Draw training users at random among all but the test users, who are always the same."""
    table = load(name)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(np.arange(table.n_test, table.n_users), users, replace=False))
    test = np.arange(min(table.n_test, MOST_TEST_USERS))
    return Sample(name, task, _part(table, task, chosen), _part(table, task, test))


def _part(table: Table, task: str, users: Array) -> Part:
    starts, ends = table.offsets[users], table.offsets[users + 1]
    rows = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
    return Part(
        numbers=table.numbers[rows].astype(np.float64),
        booleans=table.booleans[rows] > 0,
        y=(table.label if task == "classification" else table.target)[rows].astype(np.float64),
        offsets=np.concatenate([[0], np.cumsum(ends - starts)]),
    )
