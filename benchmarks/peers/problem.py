"""What is compared: a table, a task, so many users and an epsilon; needs NumPy alone.

A test set of a fifth of the users is put aside, less where that leaves 2,000 to train on; the 500 training users are
among the 2,000.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BUILD = Path(__file__).parents[2] / "build" / "peers"
DATA = BUILD / "data"
MAX_ITEMS = 64
TABLES = ("flights", "retail", "jester", "chem97")
TASKS = ("classification", "regression")
USERS = (500, 2_000, None)
EPSILONS = (0.1, 0.3, 1.0, 3.0)
DELTA = 1e-6


@dataclass(frozen=True)
class Table:
    """Rows of users in shuffled order, at most 64 each; user u owns rows offsets[u] to offsets[u + 1]."""

    name: str
    numbers: Array
    booleans: Array
    names: Array
    offsets: Array
    label: Array
    target: Array

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_test(self) -> int:
        fifth = self.n_users // 5
        return min(fifth, self.n_users - 2_000) if self.n_users >= 2_200 else fifth

    def user_counts(self) -> list[int]:
        """List the numbers of training users that this table allows."""
        every = self.n_users - self.n_test
        return sorted({n or every for n in USERS if (n or every) <= every})

    def save(self) -> None:
        DATA.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(DATA / f"{self.name}.npz", **self.__dict__)

    @staticmethod
    def load(name: str) -> "Table":
        with np.load(DATA / f"{name}.npz") as arrays:
            return Table(**{key: arrays[key] for key in arrays.files} | {"name": name})


@dataclass(frozen=True)
class Rows:
    """Users' rows: features as they are, the target of the task, and whose row is whose."""

    X: Array
    y: Array
    offsets: Array

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def items(self) -> Array:
        return np.diff(self.offsets)

    @property
    def weights(self) -> Array:
        """Weights of the rows under which every user counts once; they sum to 1."""
        return np.repeat(1 / (self.items * self.n_users), self.items)

    @property
    def groups(self) -> Array:
        return np.repeat(np.arange(self.n_users), self.items)


@dataclass(frozen=True)
class Problem:
    """Training and test users of one table and task."""

    table: str
    task: str
    users: int
    train: Rows
    test: Rows
    names: Array
    n_numbers: int

    def standardized(self) -> "Problem":
        """Features (and a regression's target) with mean 0 and variance 1 over training users, for free; a 1 last.

        No private method may do so: it is a present to the peers.
        """
        train, w = self.train, self.train.weights
        mean = w @ train.X
        deviation = np.sqrt(w @ (train.X - mean) ** 2)
        scale = np.where(deviation > 1e-6, deviation, np.inf)
        centre, spread = (0.0, 1.0) if self.task == "classification" else _moments(train)

        def convert(rows: Rows) -> Rows:
            X = (rows.X - mean) / scale
            X = np.hstack([X, np.ones((len(X), 1))]).astype(np.float32)
            return Rows(X, ((rows.y - centre) / spread).astype(np.float32), rows.offsets)

        return Problem(
            self.table, self.task, self.users, convert(train), convert(self.test), self.names, self.n_numbers
        )


def _moments(rows: Rows) -> tuple[float, float]:
    mean = float(rows.weights @ rows.y)
    return mean, float(np.sqrt(rows.weights @ (rows.y - mean) ** 2))


def make_problem(table: Table, task: str, users: int) -> Problem:
    """Test on the first users, train on the next ``users``."""
    y = table.label if task == "classification" else table.target

    def rows(first: int, last: int) -> Rows:
        begin, end = table.offsets[first], table.offsets[last]
        X = np.hstack([table.numbers[begin:end], table.booleans[begin:end].astype(np.float32)])
        return Rows(X, y[begin:end], table.offsets[first : last + 1] - begin)

    test = table.n_test
    return Problem(
        table.name, task, users, rows(test, test + users), rows(0, test), table.names, table.numbers.shape[1]
    )
