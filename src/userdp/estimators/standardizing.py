"""Where features lie and what one unit of each is, found privately."""

from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray
from userdp.data.parts import AnyUsers, changed
from userdp.estimators.per_user import per_user
from userdp.estimators.rows import Columns, boolean_rates, columns_of, mean_squares, means_in_units
from userdp.estimators.stages import (
    private_centre,
    private_feature_scale,
    private_rates,
    private_second_moment,
)
from userdp.mechanisms.noise import NoiseSource
from userdp.planning.shares import Shares
from userdp.privacy.accounting import GaussianEvent

# What one unit of a boolean feature is, if nobody knows how often it is true: the spread of one in seven.
BOOLEAN_UNIT = 0.35


def standardize(
    users: AnyUsers, split: Shares, booleans: BoolArray, noise: NoiseSource, around_zero: bool = False
) -> tuple[Columns, tuple[GaussianEvent, ...]]:
    """Find centre and scale of every number, and how often each boolean is true; drop what cannot be measured."""
    is_number = ~booleans
    scale, centre = np.where(booleans, BOOLEAN_UNIT, np.inf), np.zeros(users.n_features)
    importance = np.ones(users.n_features)
    if not split.scale:
        return Columns(centre, scale, importance), ()
    numbers = changed(users, partial(columns_of, chosen=is_number))
    rates = per_user(boolean_rates, users, booleans)
    units, norm, event = private_feature_scale(numbers, rates, around_zero, split.scale, noise)
    events: tuple[GaussianEvent, ...] = (event,)
    measured = np.flatnonzero(is_number)[units.kept]
    if measured.size:
        # Columns that nobody can measure are not looked for: the others are found the better for it.
        some = changed(users, partial(columns_of, chosen=measured))
        centre[measured], scale[measured], more = _numbers(some, units.magnitude[units.kept], split, noise)
        events = (*events, *more)
    if norm is not None:
        often, scale[booleans], event = private_rates(rates, norm, split.rates, noise)
        importance[booleans] = importance_of(often)
        centre[booleans] = 0.0 if around_zero else often
        events = (*events, event)
    return Columns(centre, scale, importance), events


def importance_of(rates: FloatArray) -> FloatArray:
    """How much may be expected of booleans: what is rarely true, or rarely false, can tell little.

    If coefficients of unscaled booleans are of one size, a boolean explains as much as its variance.
    """
    variance = rates * (1 - rates)
    found: FloatArray = variance * variance.sum() / (variance**2).sum()
    return found


def _numbers(
    numbers: AnyUsers, unit: FloatArray, split: Shares, noise: NoiseSource
) -> tuple[FloatArray, FloatArray, tuple[GaussianEvent, ...]]:
    """Find centre and scale of numbers from what one unit of each is; those that are not found have scale infinity."""
    centre = np.zeros(len(unit))
    events: tuple[GaussianEvent, ...] = ()
    if split.location:
        means = per_user(means_in_units, numbers, unit)
        located, events = private_centre(means, split.location, split.centre, noise)
        centre = np.where(located.found & np.isfinite(unit), located.place * unit, 0.0)
        # Users that differ from each other by more than a user does from row to row: a unit is what they differ by.
        unit = np.where(located.found, unit * located.spread, np.inf)
    if split.second_moment:
        squares = per_user(mean_squares, numbers, unit, np.where(np.isfinite(unit), centre / unit, 0.0))
        found, event = private_second_moment(squares, split.second_moment, noise)
        unit, events = unit * np.sqrt(found), (*events, event)
    return centre, unit, events
