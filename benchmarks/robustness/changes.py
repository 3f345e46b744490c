"""What is done to the features: nothing that a model should care about."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.problem import Array
from benchmarks.robustness.sample import Sample

FAR = 1e6
RARE_COLUMNS, RARE_RATE = 20, 0.002
AS_IT_IS, USER_MEANS, EXPONENTIAL = "as it is", "users' means added", "exp(3z) in place of z"
FAR_USER_MEANS, NORMAL = "users' means plus 1e6 added", "a normal number added"
# No oddities: what any column costs, or is worth.
CONTROLS = (NORMAL, USER_MEANS)


@dataclass(frozen=True)
class Columns:
    """Features of all rows, training and test; ``best`` is the number that says most about the target.

    ``means`` has every row's user's mean of that number: a feature that is constant within users.
    """

    numbers: Array
    booleans: Array
    best: int
    means: Array

    def replaced(self, column: Array) -> tuple[Array, Array]:
        numbers = self.numbers.copy()
        numbers[:, self.best] = column
        return numbers, self.booleans

    def added(self, *columns: Array) -> tuple[Array, Array]:
        return np.column_stack([self.numbers, *columns]), self.booleans

    @property
    def number(self) -> Array:
        number: Array = self.numbers[:, self.best]
        return number

    @property
    def standard(self) -> Array:
        """The best number with mean 0 and variance 1."""
        standard: Array = (self.number - self.number.mean()) / self.number.std()
        return standard

    @property
    def constant(self) -> Array:
        return np.ones(len(self.numbers))

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(len(self.numbers))

    @property
    def rare(self) -> Array:
        """Indicators of rare categories, of which a row has one or none."""
        category = self.rng.integers(0, round(1 / RARE_RATE), len(self.numbers))
        indicators: Array = category[:, None] == np.arange(RARE_COLUMNS)
        return indicators


Change = Callable[[Columns], tuple[Array, Array]]

CHANGES: dict[str, Change] = {
    AS_IT_IS: lambda c: (c.numbers, c.booleans),
    "a number times 1e6": lambda c: c.replaced(c.number * FAR),
    "a number times 1e-6": lambda c: c.replaced(c.number / FAR),
    "all numbers times 1e6": lambda c: (c.numbers * FAR, c.booleans),
    "a number plus 1e6": lambda c: c.replaced(c.number + FAR),
    USER_MEANS: lambda c: c.added(c.means),
    FAR_USER_MEANS: lambda c: c.added(c.means + FAR),
    NORMAL: lambda c: c.added(c.rng.normal(size=len(c.numbers))),
    "a constant 0 added": lambda c: c.added(0 * c.constant),
    "a constant 1 added": lambda c: c.added(c.constant),
    "a constant 1e6 added": lambda c: c.added(FAR * c.constant),
    "20 rare booleans added": lambda c: (c.numbers, np.hstack([c.booleans, c.rare])),
    "20 rare 0/1 numbers added": lambda c: c.added(c.rare.astype(float)),
    "a Cauchy number added": lambda c: c.added(c.rng.standard_cauchy(len(c.numbers))),
    "exp(3z) added": lambda c: c.added(np.exp(3 * c.standard)),
    EXPONENTIAL: lambda c: c.replaced(np.exp(3 * c.standard)),
}


def compared_with(change: str) -> str:
    """Whose excess loss that of a changed table is compared with."""
    return USER_MEANS if change == FAR_USER_MEANS else AS_IT_IS


def reference_of(change: str) -> str:
    """Which features the fit without privacy gets, beyond which a loss is an excess."""
    return change if change in (USER_MEANS, EXPONENTIAL) else compared_with(change)


def changed(sample: Sample, change: str) -> Sample:
    """Change the features of training and test users alike."""
    parts = (sample.train, sample.test)
    numbers, booleans = (
        np.concatenate([getattr(part, kind) for part in parts]) for kind in ("numbers", "booleans")
    )
    correlation = np.corrcoef(sample.train.numbers.T, sample.train.y)[-1, :-1]
    best = int(np.argmax(np.abs(np.nan_to_num(correlation))))
    means = np.concatenate([_user_means(part.numbers[:, best], part.offsets) for part in parts])
    return sample.with_columns(*CHANGES[change](Columns(numbers, booleans, best, means)))


def _user_means(column: Array, offsets: Array) -> Array:
    items = np.diff(offsets)
    return np.repeat(np.add.reduceat(column, offsets[:-1]) / items, items)
