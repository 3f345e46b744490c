"""What a fit does to users' rows, and what it computes of them: each user alone, so in memory or part by part alike."""

from dataclasses import dataclass, replace

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.data.users import Users
from userdp.estimators.sizes import WIDEST
from userdp.estimators.targets import Target

# Scaled targets are bounded here, in training alone.
TARGET_BOUND = 100.0


@dataclass(frozen=True)
class Columns:
    """An affine map of columns, (x - centre)/scale within +-bound; dropped columns have scale infinity.

    ``importance`` tells how much may be expected of each column, over what may be expected of a typical one. What is
    bounded is so at prediction, too.
    """

    centre: FloatArray
    scale: FloatArray
    bound: FloatArray
    importance: FloatArray

    def apply(self, rows: FloatArray) -> FloatArray:
        """Scale rows."""
        return np.clip((rows - self.centre) / self.scale, -self.bound, self.bound)

    @property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Where values are cut, on their own scale; nowhere for dropped columns, of which nothing is known."""
        reach = np.where(np.isfinite(self.scale), self.bound * self.scale, np.inf)
        return self.centre - reach, self.centre + reach


@dataclass(frozen=True)
class Scaling:
    """What descent sees: scaled features, a column of ones for the intercept, and a regression's scaled targets."""

    columns: Columns
    target: Target | None
    add_ones: bool

    @np.errstate(all="ignore")
    def __call__(self, users: Users) -> Users:
        """Scale users."""
        rows, targets = self.columns.apply(users.rows), users.targets
        if self.target is not None:
            assert targets is not None
            targets = (targets - self.target.middle) / self.target.unit
            targets = np.clip(targets, -TARGET_BOUND, TARGET_BOUND)
        if self.add_ones:
            rows = np.hstack([rows, np.ones((len(rows), 1))])
        return Users(rows.astype(np.float32), users.offsets, targets)  # as engines compute


def in_double(users: Users) -> Users:
    """Return the rows in float64, which every stage computes in."""
    return replace(users, rows=users.rows.astype(np.float64, copy=False))


def null_by_value(users: Users, min_items: int) -> Users:
    """Turn all rows of a null user into NaN: no later clip makes it finite again, every stage sees it alike."""
    null = np.repeat(~users.usable(min_items), users.items_per_user)
    return replace(users, rows=np.where(null[:, None], np.nan, users.rows))


def targets_as_rows(users: Users) -> Users:
    """Make the targets the one column, NaN for a null user."""
    assert users.targets is not None
    return replace(users, rows=np.where(np.isnan(users.rows[:, :1]), np.nan, users.targets[:, None]))


def columns_of(users: Users, chosen: BoolArray | IntArray) -> Users:
    """Return some of the columns, without targets."""
    return replace(users, rows=users.rows[:, chosen], targets=None)


def user_rates(users: Users, n_classes: int) -> FloatArray:
    """How often each class occurs among each user's rows; NaN for a null user."""
    assert users.targets is not None
    codes = users.targets[:, None] == np.arange(n_classes)
    rates = replace(users, rows=codes.astype(np.float64), targets=None).means()
    return np.where(users.usable()[:, None], rates, np.nan)


def boolean_rates(users: Users, booleans: BoolArray) -> FloatArray:
    """How often each boolean is true among each user's rows; NaN for a null user."""
    rates = replace(users, rows=(users.rows[:, booleans] > 0).astype(np.float64), targets=None).means()
    null = np.isnan(users.rows[users.offsets[:-1], :1])
    return np.where(null, np.nan, rates)


def norms_of(vectors: FloatArray) -> FloatArray:
    """Norm of each vector, a column."""
    norms: FloatArray = np.sqrt((np.ascontiguousarray(vectors) ** 2).sum(axis=1, keepdims=True))
    return norms


def means_in_units(users: Users, unit: FloatArray) -> FloatArray:
    """Each user's means, in units."""
    return users.means() / unit


def mean_squares(users: Users, unit: FloatArray, place: FloatArray) -> FloatArray:
    """Each user's mean squares around a place, in units, of values within +-WIDEST."""
    return replace(users, rows=np.clip(users.rows / unit - place, -WIDEST, WIDEST) ** 2).means()
