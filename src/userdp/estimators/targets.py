"""Unit and middle of a regression's targets, found privately: the start of everything else.

Proofs: ``docs/proofs/stages.md``.
"""

import math
from dataclasses import dataclass

import numpy as np

from userdp.arrays import FloatArray, IntArray
from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.estimators.balls import private_mean_in_ball, weighted
from userdp.estimators.looks import private_places
from userdp.estimators.pairs import are_worth_it, pair_magnitudes
from userdp.estimators.per_user import Vectors, mapped, per_user
from userdp.estimators.votes import POWERS, private_counts
from userdp.means.votes import CERTAIN, LEAST_SHARE, near_zero, nearest_powers_of_four, usual_units
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent

# How magnitudes scatter around the typical one, in powers of four, and users' means around the common one, in bins.
_POWER_SPREADS, _MEAN_SPREADS = (0.65, 2.0), (0.5, 1.5)
# What one unit is, of the deviations from a user's first row and of what two users differ by.
_UNIT, _PAIR_UNIT = 0.72, 1.02
# Where users tell it by themselves it is no less than this share of where targets lie.
_LEAST_OF_MEAN = 0.1
# The middle is looked for among bins of so many units, then in a ball of so many.
_BINS, _BIN, _RADIUS = np.arange(-256, 257), 2.0, 2.0
# Where looks find it, the middle is off by so many squared units, and then looked for in a ball of so many.
_LOOKED_VARIANCE, _LOOKED_RADIUS = 0.2, 1.0
# What a unit is taken for that nobody knows: a model in it says nothing.
_TINY = 4.0 ** float(POWERS[0])


@dataclass(frozen=True)
class Target:
    """Private middle and unit of a regression's targets."""

    middle: float
    unit: float


def private_target(
    users: AnyUsers, scale_mu: float, location_mu: float, mean_mu: float, noise: NoiseSource
) -> tuple[Target, tuple[GaussianEvent, ...]]:
    """Find unit and middle of the targets (the one column of ``users``), wherever they lie within 512 units of zero.

    Users vote for where their mean lies; the mean of all users is then taken in a ball around the most likely place,
    and weighted against it by what is known of either. A unit that is a guess is taken as tiny, and the middle is then
    about zero: a model of noise in too large a unit is worse than one that says nothing.

    **Guarantee**: the events'.
    """
    unit, scale_event = private_unit(users, scale_mu, noise)
    if not location_mu:
        return Target(0.0, unit), (scale_event,)
    means = mapped(lambda some: some / unit, per_user(Users.means, users))
    bins = mapped(lambda some: np.rint(some / _BIN), means)
    found = private_counts(bins, _BINS, location_mu, "target location", noise)
    narrow, wide = (found.places((width,), near_zero) for width in _MEAN_SPREADS)
    places = narrow.where(narrow.support >= LEAST_SHARE, wide)  # even if in doubt: a target is not dropped
    place, variance = _BIN * places.place, _BIN**2 * places.variance
    near = private_mean_in_ball(means, place, _RADIUS, mean_mu, "target mean", noise)
    middle = weighted(place, variance + 0.05, near)
    return Target(float(middle[0]) * unit, unit), (scale_event, found.event, near.event)


def target_by_looks(
    users: AnyUsers, first_mu: float, later_mu: float, mean_mu: float, noise: NoiseSource, around_zero: bool
) -> tuple[Target, tuple[GaussianEvent, ...]]:
    """Find unit and middle of the targets as those of a number: by a look at sign and size, and a second one.

    Where users are too few to find a unit first. Without ``later_mu`` there is no second look: the middle is then about
    as large as the targets are, and the unit tiny, so that the model is that one number.

    **Guarantee**: the events'.
    """
    only_once = math.hypot(first_mu, 1.2 * later_mu)  # a third look would cost later_mu again
    places, _, events = private_places(
        users, None, first_mu, later_mu, only_once, noise, around_zero, ("target look", "target look")
    )
    centre, unit = float(places.centre[0]), float(places.spread[0])
    if not places.found[0]:
        return Target(0.0, _TINY), events
    if around_zero:
        return Target(0.0, unit), events
    if not later_mu:
        return Target(centre, _TINY), events
    means = mapped(lambda some: some / unit, per_user(Users.means, users))
    place = np.array([centre / unit])
    near = private_mean_in_ball(means, place, _LOOKED_RADIUS, mean_mu, "target mean", noise)
    middle = weighted(place, np.array([_LOOKED_VARIANCE]), near)
    return Target(float(middle[0]) * unit, unit), (*events, near.event)


def private_unit(targets: AnyUsers, mu: float, noise: NoiseSource) -> tuple[float, GaussianEvent]:
    """Find the unit: votes for the power of four next to a magnitude; a unit that is a guess is taken as tiny.

    **Guarantee**: the event's.
    """
    magnitudes, unit = _differences(targets, mu, noise)
    found = private_counts(mapped(nearest_powers_of_four, magnitudes), POWERS, mu, "target scale", noise)
    places = found.places(_POWER_SPREADS, usual_units)
    is_there = places.evidence[0] >= 0 and places.support[0] >= LEAST_SHARE  # not the highest of mere noise
    is_known = is_there and places.certainty[0] >= CERTAIN
    return unit * (4.0 ** float(places.place[0]) if is_known else _TINY), found.event


def _differences(targets: AnyUsers, mu: float, noise: NoiseSource) -> tuple[Vectors, float]:
    """Return by how much targets differ, one number a vote, and what one unit is of it.

    Two users tell by how much rows differ altogether. Where half as many votes would say too little, each tells by how
    much their own rows do, no less than a tenth of where these lie, so that the middle is in sight.
    """
    if are_worth_it(targets.n_users, mu):
        return pair_magnitudes(targets, noise), _PAIR_UNIT
    return per_user(user_magnitudes, targets), _UNIT


def user_magnitudes(users: Users) -> FloatArray:
    """Root mean square of each user's nonzero deviations from their first row, else of nonzero values.

    NaN where a user has neither; each row is a function of one user alone. Deviations do not depend on where targets
    lie, which nobody knows yet; they count as no less than a tenth of the values.
    """
    starts, items = users.offsets[:-1], users.items_per_user
    usable = users.usable()[:, None]
    with np.errstate(all="ignore"):
        rows = np.where(np.repeat(usable, items, axis=0), users.rows, 0.0).astype(np.float64)
        found = _rms_of_nonzero(rows, starts)
        deviation = _rms_of_nonzero(rows - np.repeat(rows[starts], items, axis=0), starts)
        is_wide = np.isfinite(deviation) & (deviation > 0)
        found = np.where(is_wide, np.maximum(deviation, _LEAST_OF_MEAN * found), found)
    return np.where(usable & np.isfinite(found) & (found > 0), found, np.nan)


def _rms_of_nonzero(rows: FloatArray, starts: IntArray) -> FloatArray:
    squares: FloatArray = np.add.reduceat(rows**2, starts, axis=0)
    nonzero = np.add.reduceat(rows != 0, starts, axis=0, dtype=np.int64)
    return np.sqrt(squares / nonzero)
