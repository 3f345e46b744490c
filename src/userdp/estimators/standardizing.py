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
    if not split.scale:
        return Columns(centre, scale), ()
    numbers = changed(users, partial(columns_of, chosen=is_number))
    rates = per_user(boolean_rates, users, booleans)
    units, norm, event = private_feature_scale(numbers, rates, around_zero, split.scale, noise)
    events: tuple[GaussianEvent, ...] = (event,)
    if is_number.any():
        unit = np.where(units.kept, units.magnitude, np.inf)
        centre[is_number], scale[is_number], more = _numbers(numbers, unit, split, noise)
        events = (*events, *more)
    if norm is not None:
        often, scale[booleans], event = private_rates(rates, norm, split.rates, noise)
        centre[booleans] = 0.0 if around_zero else often
        events = (*events, event)
    return Columns(centre, scale), events


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
