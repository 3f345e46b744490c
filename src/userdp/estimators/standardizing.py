"""Where features lie and what one unit of each is, found privately."""

from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray
from userdp.data.parts import AnyUsers, changed
from userdp.estimators.looks import Places, private_places
from userdp.estimators.per_user import mapped, per_user
from userdp.estimators.rows import Columns, boolean_rates, columns_of, mean_squares, means_in_units, norms_of
from userdp.estimators.sizes import WIDEST
from userdp.estimators.stages import (
    importance_of,
    private_centre,
    private_rates,
    private_second_moment,
)
from userdp.mechanisms.noise import NoiseSource
from userdp.planning.shares import Shares
from userdp.privacy.accounting import GaussianEvent


def standardize(
    users: AnyUsers, split: Shares, booleans: BoolArray, noise: NoiseSource, around_zero: bool = False
) -> tuple[Columns, tuple[GaussianEvent, ...]]:
    """Find centre and scale of every number, and how often each boolean is true; drop what cannot be measured."""
    is_number = ~booleans
    centre, importance = np.zeros(users.n_features), np.ones(users.n_features)
    scale, bound = np.full(users.n_features, np.inf), np.full(users.n_features, WIDEST)
    if not split.scale:
        return Columns(centre, scale, bound, importance), ()
    numbers = changed(users, partial(columns_of, chosen=is_number))
    rates = per_user(boolean_rates, users, booleans)
    norms = mapped(norms_of, rates) if booleans.any() else None
    places, norm, events = private_places(
        numbers, norms, split.scale, split.location, split.looks, noise, around_zero
    )
    measured = np.flatnonzero(is_number)[places.found]
    if measured.size:
        some = changed(users, partial(columns_of, chosen=measured))
        centre[measured], scale[measured], more = _refined(some, places, split, noise)
        bound[measured] = places.bound[places.found]
        events = (*events, *more)
    if norm is not None:
        often, scale[booleans], event = private_rates(rates, norm, split.rates, noise)
        importance[booleans] = importance_of(often)
        centre[booleans] = 0.0 if around_zero else often
        # All of a boolean is let in: it is bounded by itself, however rarely it is true.
        whole = np.maximum(centre, 1 - centre) / scale
        bound = np.where(booleans & np.isfinite(scale), whole, bound)
        events = (*events, event)
    return Columns(centre, scale, bound, importance), events


def _refined(
    numbers: AnyUsers, places: Places, split: Shares, noise: NoiseSource
) -> tuple[FloatArray, FloatArray, tuple[GaussianEvent, ...]]:
    """Refine centre and scale of the numbers that were found by means of users' values, where these tell more."""
    unit = places.spread[places.found]
    centre = places.centre[places.found] / unit
    events: tuple[GaussianEvent, ...] = ()
    if split.centre:
        means = per_user(means_in_units, numbers, unit)
        centre, event = private_centre(means, centre, split.centre, noise)
        events = (event,)
    if split.second_moment:
        squares = per_user(mean_squares, numbers, unit, centre)
        found, event = private_second_moment(squares, split.second_moment, noise)
        return centre * unit, unit * np.sqrt(found), (*events, event)
    return centre * unit, unit, events
