r"""What an estimator learns about the data before it descends, each stage private by itself.

All stages see one thing per user and release integers with discrete Gaussian noise; what they cost is an event of the
accounting, and everything after is post-processing. Proofs: ``docs/proofs/stages.md``.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.estimators.balls import BallMean, private_mean_in_ball, shrunk, weighted
from userdp.estimators.pairs import are_worth_it, pair_magnitudes
from userdp.estimators.per_user import Vectors, mapped, per_user
from userdp.estimators.votes import (
    CERTAIN,
    LEAST_SHARE,
    POWERS,
    NoisyCounts,
    Places,
    anywhere,
    near_zero,
    nearest_powers_of_four,
    private_counts,
    usual_units,
)
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent

# How users' own magnitudes of one column scatter around their typical one, in powers of four, and their means around
# the common one, in bins.
_POWER_SPREADS, _MEAN_SPREADS = (0.65, 2.0), (0.6, 2.5, 10.0)
# A unit is a little less than a standard deviation. Deviations from a user's first row are sqrt(2) of them, what two
# users differ by is one.
_UNIT, _PAIR_UNIT = 0.6, 0.85
# Below these log odds to noise a magnitude is a guess.
_EVIDENT = 1.0
# A target's unit is 1.2 of these, and where users tell it by themselves no less than this share of where it lies. Its
# middle is looked for among bins of two units, then in a ball of so many.
_TARGET_UNITS, _TARGET_SPREADS, _LEAST_OF_MEAN = 1.2, (0.5, 1.5), 0.1
_TARGET_BINS, _TARGET_RADIUS = np.arange(-256, 257), 2.0
# Features are located among such bins, too, the outermost for whatever lies beyond; one that lies there is looked
# for from afar, each look ZOOM times nearer.
_REACH, _LOCATION_WIDTH, ZOOM, _LOOKS = 128, 2.0, 128.0, 3
_LOCATION_BINS = np.arange(-_REACH - 1, _REACH + 2)
_LOG_PRIOR_BEYOND = math.log(0.01)  # as `near_zero` has it
# Users' rates of booleans are clipped to so many of their typical norms.
_RATE_RADIUS = 1.5
# Rates that a boolean may have.
_RATES = np.concatenate([2.0 ** np.arange(-10, -0.9, 0.5), 1 - 2.0 ** np.arange(-1.5, -5.1, -0.5)])


@dataclass(frozen=True)
class Scale:
    """Private magnitudes: what one unit of each column is, and which could be measured."""

    magnitude: FloatArray
    kept: BoolArray


@dataclass(frozen=True)
class Centre:
    """Private locations of columns, which could be found, and how widely users' means scatter there: a unit or more."""

    place: FloatArray
    spread: FloatArray
    found: BoolArray


@dataclass(frozen=True)
class Target:
    """Private middle and unit of a regression's targets."""

    middle: float
    unit: float


def private_scale(
    magnitudes: Vectors, mu: float, name: str, noise: NoiseSource, may_be_absent: bool = True
) -> tuple[Scale, GaussianEvent]:
    """Find the magnitude of every column: each user votes for the power of four next to their own.

    A feature may be one that hardly anybody has (``may_be_absent``); a target has a magnitude.

    **Guarantee**: the event's.
    """
    found = private_counts(mapped(nearest_powers_of_four, magnitudes), POWERS, mu, name, noise)
    places = found.places(_POWER_SPREADS, usual_units, pooled=magnitudes.shape[1] > 1)
    is_kept = places.certainty >= CERTAIN
    if may_be_absent:
        is_kept &= places.evidence >= _EVIDENT
    return Scale(4.0**places.place, is_kept), found.event


def user_magnitudes(users: Users, around_zero: bool = False, least_of_mean: float = 0.0) -> FloatArray:
    """Root mean square of each user's nonzero deviations from their first row, else of nonzero values.

    NaN where a user has neither; each row is a function of one user alone. Deviations do not depend on where the
    feature lies, which nobody knows yet. ``around_zero`` takes the values at once; with ``least_of_mean`` a deviation
    counts as no less than this share of the values.
    """
    starts, items = users.offsets[:-1], users.items_per_user
    usable = users.usable()[:, None]
    with np.errstate(all="ignore"):
        rows = np.where(np.repeat(usable, items, axis=0), users.rows, 0.0).astype(np.float64)
        found = _rms_of_nonzero(rows, starts)
        if not around_zero:
            deviation = _rms_of_nonzero(rows - np.repeat(rows[starts], items, axis=0), starts)
            found = np.where(
                np.isfinite(deviation) & (deviation > 0), np.maximum(deviation, least_of_mean * found), found
            )
    return np.where(usable & np.isfinite(found) & (found > 0), found, np.nan)


def _rms_of_nonzero(rows: FloatArray, starts: IntArray) -> FloatArray:
    squares: FloatArray = np.add.reduceat(rows**2, starts, axis=0)
    nonzero = np.add.reduceat(rows != 0, starts, axis=0, dtype=np.int64)
    return np.sqrt(squares / nonzero)


def private_feature_scale(
    numbers: AnyUsers, boolean_rates: Vectors, around_zero: bool, mu: float, noise: NoiseSource
) -> tuple[Scale, float | None, GaussianEvent]:
    """Find the unit of every number, and the typical norm of users' rates of the booleans, from one vote for each.

    ``boolean_rates`` has a column for each boolean, or none; the norm is None where it is a guess.

    **Guarantee**: the event's.
    """
    d, has_booleans = numbers.n_features, boolean_rates.shape[1] > 0
    norms = mapped(_norms, boolean_rates) if has_booleans else None
    found, event, unit = _private_unit(numbers, norms, around_zero, mu, "feature scales", noise)
    norm = float(found.magnitude[d]) if has_booleans and found.kept[d] else None
    return Scale(unit * found.magnitude[:d], found.kept[:d]), norm, event


def _private_unit(
    numbers: AnyUsers,
    norms: Vectors | None,
    around_zero: bool,
    mu: float,
    name: str,
    noise: NoiseSource,
    is_target: bool = False,
) -> tuple[Scale, GaussianEvent, float]:
    """Return the magnitudes of columns, their cost, and what one unit is of them.

    Two users tell by how much rows differ altogether. Where half as many votes would say too little, each tells by how
    much their own rows do; of a target no less than a tenth of where these lie, so that its middle is in sight.
    """
    n_columns = numbers.n_features + (norms is not None)
    if not around_zero and are_worth_it(numbers.n_users, n_columns, mu, is_target):
        pairs = pair_magnitudes(numbers, norms, noise)
        return *private_scale(pairs, mu, name, noise, not is_target), _PAIR_UNIT
    own = per_user(user_magnitudes, numbers, around_zero, _LEAST_OF_MEAN if is_target else 0.0)
    magnitudes = own if norms is None else mapped(_with_norms, own, norms)
    return *private_scale(magnitudes, mu, name, noise, not is_target), _UNIT


def _norms(rates: FloatArray) -> FloatArray:
    norms: FloatArray = np.sqrt((np.ascontiguousarray(rates) ** 2).sum(axis=1, keepdims=True))
    return norms


def _with_norms(magnitudes: FloatArray, norms: FloatArray) -> FloatArray:
    return np.hstack([magnitudes, np.where(norms > 0, norms, np.nan)])


def private_rates(
    user_rates: Vectors, norm: float, mu: float, noise: NoiseSource
) -> tuple[FloatArray, FloatArray, GaussianEvent]:
    """How often each boolean is true, most likely; and one unit of each, a standard deviation.

    A unit is no finer than the noise: a column that is hardly ever true is not blown up.

    **Guarantee**: the event's.
    """
    d = user_rates.shape[1]
    found = private_mean_in_ball(user_rates, np.zeros(d), _RATE_RADIUS * norm, mu, "boolean rates", noise)
    rates = likely_rates(found)
    told = np.clip(rates, min(found.noise_std, 0.3), 0.5)
    return rates, np.sqrt(told * (1 - told)), found.event


def likely_rates(found: BallMean) -> FloatArray:
    """Posterior means of noisy rates, which learn from each other which rates are common.

    Where a few are often true and most hardly ever, shrinking all towards their average would blur that.
    """
    log_likelihood = -0.5 * ((found.value[:, None] - _RATES) / found.noise_std) ** 2
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    common = np.full(len(_RATES), 1 / len(_RATES))
    for _ in range(50):
        posterior = likelihood * common
        posterior /= posterior.sum(axis=1, keepdims=True)
        common = (posterior.sum(axis=0) + 1 / len(_RATES)) / (len(posterior) + 1)
    means: FloatArray = posterior @ _RATES
    return means


def private_target(
    users: AnyUsers, scale_mu: float, location_mu: float, mean_mu: float, noise: NoiseSource
) -> tuple[Target, tuple[GaussianEvent, ...]]:
    """Find unit and middle of the targets (the one column of ``users``), wherever they lie within 512 units of zero.

    Users vote for where their mean lies; the mean of all users is then taken in a ball around the most likely place,
    and weighted against it by what is known of either. Where nothing is found the middle is zero, and a unit that is a
    guess is taken as tiny: a model of noise in too large a unit is worse than one that says nothing.

    **Guarantee**: the events'.
    """
    scale, scale_event, one = _private_unit(
        users, None, False, scale_mu, "target scale", noise, is_target=True
    )
    unit = _TARGET_UNITS * one * (float(scale.magnitude[0]) if scale.kept[0] else 4.0 ** POWERS[0])
    if not location_mu:
        return Target(0.0, unit), (scale_event,)
    means = mapped(lambda some: some / unit, per_user(Users.means, users))
    bins = mapped(lambda some: np.rint(some / _LOCATION_WIDTH), means)
    found = private_counts(bins, _TARGET_BINS, location_mu, "target location", noise)
    narrow, wide = (found.places((width,), near_zero) for width in _TARGET_SPREADS)
    places = narrow.where(narrow.support >= LEAST_SHARE, wide)  # even if in doubt: a target is not dropped
    place, variance = _LOCATION_WIDTH * places.place, _LOCATION_WIDTH**2 * places.variance
    if not mean_mu:
        middle = place if places.evidence[0] >= 0 else np.zeros(1)
        return Target(float(middle[0]) * unit, unit), (scale_event, found.event)
    near = private_mean_in_ball(means, place, _TARGET_RADIUS, mean_mu, "target mean", noise)
    middle = weighted(place, variance + 0.05, near)
    return Target(float(middle[0]) * unit, unit), (scale_event, found.event, near.event)


def private_centre(
    user_means: Vectors, location_mu: float, centre_mu: float, noise: NoiseSource
) -> tuple[Centre, tuple[GaussianEvent, ...]]:
    """Locate the users' means (in units) by votes, then average them in a ball around there.

    A first look sees 256 units to either side of zero. Columns of which most users lie beyond are looked for once
    more, from so far that 4 million units are in sight; these looks are paid for only if there are such columns, which
    the first one has released. Without a share the ball is left out.

    **Guarantee**: the events'.
    """
    d = user_means.shape[1]
    found = _look(user_means, np.zeros(d), _LOCATION_WIDTH, location_mu, "location", noise)
    places, events = found.within(_REACH).places(_MEAN_SPREADS, near_zero, narrow=True), [found.event]
    is_far = _is_beyond(found, places)
    centre, variance = _LOCATION_WIDTH * places.place, places.variance
    spread, certain = _units_wide(places), places.is_found
    if is_far.any():
        far, more = _from_afar(
            mapped(partial(_columns, chosen=is_far), user_means),
            location_mu * math.sqrt(min(2 * is_far.mean(), 1.0)),
            noise,
        )
        centre[is_far], spread[is_far], certain[is_far] = far.place, far.spread, far.found
        events.extend(more)
    if centre_mu:
        near = private_mean_in_ball(user_means, centre, math.sqrt(d), centre_mu, "centre", noise)
        centre = weighted(centre, _LOCATION_WIDTH**2 * variance + 0.05, near)
        events.append(near.event)
    return Centre(centre, spread, certain), tuple(events)


def _from_afar(
    user_means: Vectors, mu: float, noise: NoiseSource
) -> tuple[Centre, tuple[GaussianEvent, ...]]:
    """Zoom in on columns that lie far from zero; every look costs ``mu``."""
    d = user_means.shape[1]
    centre, certain, events = np.zeros(d), np.ones(d, dtype=bool), []
    for look in reversed(range(_LOOKS)):
        width = _LOCATION_WIDTH * ZOOM**look
        found = _look(user_means, centre, width, mu, f"location, zoom {_LOOKS - look}", noise)
        places = found.within(_REACH).places(
            _MEAN_SPREADS[:1] if look else _MEAN_SPREADS, anywhere, narrow=True
        )
        # Seen from afar all users share a bin, and between bins there is only noise.
        centre = centre + width * (np.rint(places.place) if look else places.place)
        certain &= places.is_found & ~_is_beyond(found, places)
        events.append(found.event)
    return Centre(centre, _units_wide(places), certain), tuple(events)


def _look(
    user_means: Vectors, centre: FloatArray, width: float, mu: float, name: str, noise: NoiseSource
) -> NoisyCounts:
    votes = mapped(partial(_nearest_bins, centre=centre, width=width), user_means)
    return private_counts(votes, _LOCATION_BINS, mu, name, noise)


def _is_beyond(found: NoisyCounts, places: Places) -> BoolArray:
    """Whether a column lies beyond what is in sight more likely than within."""
    is_beyond: BoolArray = found.score_of_ends() + _LOG_PRIOR_BEYOND > np.maximum(places.evidence, 0.0)
    return is_beyond


def _units_wide(places: Places) -> FloatArray:
    """How widely users' means scatter, where that is more than a user's rows do."""
    return np.where(places.width > _MEAN_SPREADS[0], _LOCATION_WIDTH * places.width, 1.0)


def _columns(vectors: FloatArray, chosen: BoolArray) -> FloatArray:
    return vectors[:, chosen]


def _nearest_bins(values: FloatArray, centre: FloatArray, width: float) -> FloatArray:
    return np.clip(np.rint((values - centre) / width), -_REACH - 1, _REACH + 1)


def private_second_moment(
    user_squares: Vectors, mu: float, noise: NoiseSource
) -> tuple[FloatArray, GaussianEvent]:
    """Mean over users of their mean squares, between 1/16 and 16, shrunk towards the average feature."""
    d = user_squares.shape[1]
    found = private_mean_in_ball(user_squares, np.ones(d), math.sqrt(d), mu, "second moments", noise)
    return np.clip(shrunk(found, 0.1), 1 / 16, 16.0), found.event


def private_base_rate(user_rates: Vectors, mu: float, noise: NoiseSource) -> tuple[FloatArray, GaussianEvent]:
    """Mean over users of their class rates, points of the simplex around its middle."""
    k = user_rates.shape[1]
    found = private_mean_in_ball(user_rates, np.full(k, 1 / k), math.sqrt(1 - 1 / k), mu, "base rate", noise)
    # No class is taken to be rarer than what the noise could hide.
    rates = np.clip(found.value, min(max(found.noise_std, 1e-3), 0.5 / k), None)
    return rates / rates.sum(), found.event
