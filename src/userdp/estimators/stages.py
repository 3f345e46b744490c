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
from userdp.estimators.per_user import Vectors, mapped, per_user, total
from userdp.estimators.votes import (
    POWERS,
    near_zero,
    nearest_powers_of_four,
    private_counts,
    usual_units,
)
from userdp.means.clipped import clip_to_lattice_ball
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.planning.descent import NORM_SPREAD, share_kept
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

# How users' own magnitudes of one column scatter around their typical one, in powers of four, and their means around
# the common one, in bins.
_POWER_SPREAD, _MEAN_SPREAD = 0.65, 0.6
# Deviations from a user's first row are sqrt(2) standard deviations; a unit is a little less than one.
_UNIT = 0.6
# Below this posterior probability a magnitude or a place is a guess.
_CERTAIN = 0.7
# A place that so few of the users voted for is not that of the column.
_SUPPORTED = 0.25
# A target's unit is 1.2 magnitudes; its middle is looked for so many units from zero.
_TARGET_UNIT, _TARGET_SPREAD = 1.2 * _UNIT, 0.7
_TARGET_BINS = np.arange(-32, 33)
# Features are located among so many bins of two magnitudes; with more levels, each zooms out by ZOOM.
_LOCATION_BINS = np.arange(-128, 129)
_LOCATION_WIDTH, ZOOM = 2.0, 128.0
# Gradients' norms lie between these halves of a power of two.
_RADIUS_BINS = np.arange(-16, 5)


@dataclass(frozen=True)
class Scale:
    """Private magnitudes: what one unit of each column is, and which could be measured."""

    magnitude: FloatArray
    kept: BoolArray


@dataclass(frozen=True)
class Centre:
    """Private locations of columns, and which could be found."""

    place: FloatArray
    found: BoolArray


@dataclass(frozen=True)
class Target:
    """Private middle and unit of a regression's targets."""

    middle: float
    unit: float


@dataclass(frozen=True)
class Clip:
    """A clip radius, and about how much of the mean gradient survives clipping there."""

    radius: float
    kept: float


@dataclass(frozen=True)
class BallMean:
    """A private mean inside a ball, its noise per coordinate, and its cost."""

    value: FloatArray
    noise_std: float
    event: GaussianEvent


def private_mean_in_ball(
    vectors: Vectors, centre: FloatArray, radius: float, mu: float, name: str, noise: NoiseSource
) -> BallMean:
    """Average the users' vectors clipped into a ball; a null user counts as its centre.

    **Guarantee**: the event's; sensitivity 2 radius/n (``docs/proofs/clipped_mean.md``).
    """
    n, d = vectors.shape
    lattice = Lattice.fine_enough(radius, n, d)
    sensitivity = 2.0 * lattice.radius_units
    event = GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), d)
    sum_of_users = total(lambda some: clip_to_lattice_ball(some, centre, lattice).sum(axis=0), vectors)
    noisy = sum_of_users + noise.discrete_gaussian(event.scale, d)
    step = lattice.step / n
    return BallMean(centre + noisy * step, event.scale * step, event)


def private_scale(
    magnitudes: Vectors, mu: float, name: str, noise: NoiseSource
) -> tuple[Scale, GaussianEvent]:
    """Find the magnitude of every column: each user votes for the power of four next to their own.

    **Guarantee**: the event's.
    """
    found = private_counts(mapped(nearest_powers_of_four, magnitudes), POWERS, mu, name, noise)
    places = found.places(_POWER_SPREAD, usual_units, pooled=True)
    return Scale(4.0**places.place, places.certainty >= _CERTAIN), found.event


def user_magnitudes(users: Users, around_zero: bool = False) -> FloatArray:
    """Root mean square of each user's nonzero deviations from their first row, else of nonzero values.

    NaN where a user has neither; each row is a function of one user alone. Deviations do not depend on where the
    feature lies, which nobody knows yet. ``around_zero`` takes the values at once.
    """
    starts, items = users.offsets[:-1], users.items_per_user
    usable = users.usable()[:, None]
    with np.errstate(all="ignore"):
        rows = np.where(np.repeat(usable, items, axis=0), users.rows, 0.0).astype(np.float64)
        found = _rms_of_nonzero(rows, starts)
        if not around_zero:
            deviation = _rms_of_nonzero(rows - np.repeat(rows[starts], items, axis=0), starts)
            found = np.where(np.isfinite(deviation) & (deviation > 0), deviation, found)
    return np.where(usable & np.isfinite(found) & (found > 0), found, np.nan)


def _rms_of_nonzero(rows: FloatArray, starts: IntArray) -> FloatArray:
    squares: FloatArray = np.add.reduceat(rows**2, starts, axis=0)
    nonzero = np.add.reduceat(rows != 0, starts, axis=0, dtype=np.int64)
    return np.sqrt(squares / nonzero)


def private_feature_scale(
    numbers: AnyUsers, booleans_true: Vectors, around_zero: bool, mu: float, noise: NoiseSource
) -> tuple[Scale, float | None, GaussianEvent]:
    """Find the unit of every number, and how many booleans of a row are true, from one vote of each user for each.

    ``booleans_true`` has one column, every user's mean count, or none; the count is None where it is a guess.

    **Guarantee**: the event's.
    """
    own = per_user(user_magnitudes, numbers, around_zero)
    magnitudes = mapped(
        lambda some, true: np.hstack([some, np.where(true > 0, true, np.nan)]), own, booleans_true
    )
    scale, event = private_scale(magnitudes, mu, "feature scales", noise)
    d = numbers.n_features
    true = float(scale.magnitude[d]) if booleans_true.shape[1] and scale.kept[d] else None
    return Scale(_UNIT * scale.magnitude[:d], scale.kept[:d]), true, event


def private_target(
    users: AnyUsers, scale_mu: float, location_mu: float, mean_mu: float, noise: NoiseSource
) -> tuple[Target, tuple[GaussianEvent, ...]]:
    """Find unit and middle of the targets (the one column of ``users``), wherever they lie within 32 units of zero.

    The unit is 1.2 magnitudes. Users vote for the unit their mean lies in; the mean of all users is then taken in a
    ball around the most likely place, and weighted against it by what is known of either. Without a share for
    that the middle is zero. Where the unit is a guess it is taken as tiny: a model of noise in too large a unit is
    worse than one that says nothing.

    **Guarantee**: the events'.
    """
    scale, scale_event = private_scale(per_user(user_magnitudes, users), scale_mu, "target scale", noise)
    unit = _TARGET_UNIT * (float(scale.magnitude[0]) if scale.kept[0] else 4.0 ** POWERS[0])
    if not location_mu:
        return Target(0.0, unit), (scale_event,)
    means = mapped(lambda some: some / unit, per_user(Users.means, users))
    found = private_counts(mapped(np.rint, means), _TARGET_BINS, location_mu, "target location", noise)
    places = found.places(_TARGET_SPREAD, near_zero)
    near = private_mean_in_ball(means, places.place, 1.5, mean_mu, "target mean", noise)
    middle = _weighted(places.place, places.variance + 0.05, near)
    return Target(float(middle[0]) * unit, unit), (scale_event, found.event, near.event)


def private_centre(
    user_means: Vectors, location_mu: float, centre_mu: float, levels: int, noise: NoiseSource
) -> tuple[Centre, tuple[GaussianEvent, ...]]:
    """Locate the users' means (in units of their magnitude) by votes, then average them in a ball around there.

    Each of the ``levels`` zooms in on the place that the last one found; the first sees 256 ZOOM^(levels - 1)
    magnitudes to either side. Without a share the ball is left out.

    **Guarantee**: the events'.
    """
    d = user_means.shape[1]
    centre, certain, events = np.zeros(d), np.ones(d, dtype=bool), []
    for level in reversed(range(levels)):
        width = _LOCATION_WIDTH * ZOOM**level
        votes = mapped(partial(_nearest_bins, centre=centre, width=width), user_means)
        name = "location" if levels == 1 else f"location, level {levels - level}"
        found = private_counts(votes, _LOCATION_BINS, location_mu / math.sqrt(levels), name, noise)
        places = found.places(_MEAN_SPREAD, near_zero)
        # Seen from afar all users share a bin, and between bins there is only noise.
        centre = centre + width * (np.rint(places.place) if level else places.place)
        certain &= (places.certainty >= _CERTAIN) & (places.support >= _SUPPORTED)
        events.append(found.event)
    if centre_mu:
        near = private_mean_in_ball(user_means, centre, math.sqrt(d) / 2, centre_mu, "centre", noise)
        centre = _weighted(centre, width**2 * places.variance + 0.05, near)
        events.append(near.event)
    return Centre(centre, certain), tuple(events)


def _nearest_bins(values: FloatArray, centre: FloatArray, width: float) -> FloatArray:
    return np.rint((values - centre) / width)


def _weighted(guess: FloatArray, variance: FloatArray, found: BallMean) -> FloatArray:
    """Weigh a guess of known variance against a noisy mean."""
    trust = variance / (variance + found.noise_std**2)
    weighted: FloatArray = guess + trust * (found.value - guess)
    return weighted


def private_clip(
    norms: FloatArray, dimension: int, ratio: float, mu: float, noise: NoiseSource
) -> tuple[Clip, GaussianEvent]:
    """Choose a clip radius: ``ratio`` times the median of a log-normal law fitted to noisy counts of the users' norms.

    Where the counts say little, the norm of a typical gradient of scaled features, sqrt(dimension)/4, is assumed.

    **Guarantee**: the event's; one user moves one norm.
    """
    unit = math.sqrt(dimension)
    edges = unit * 2.0 ** (_RADIUS_BINS[:-1] / 2)
    votes = np.where(np.isnan(norms), np.nan, _RADIUS_BINS[np.searchsorted(edges, norms)])[:, None]
    found = private_counts(votes, _RADIUS_BINS, mu, "clip radius", noise)
    places = found.places(NORM_SPREAD, lambda halves: -0.5 * ((halves / 2 + 2) / 1.5) ** 2)
    median = unit * 2.0 ** ((float(places.place[0]) - 0.5) / 2)
    return Clip(ratio * median, share_kept(ratio)), found.event


def private_second_moment(
    user_squares: Vectors, mu: float, noise: NoiseSource
) -> tuple[FloatArray, GaussianEvent]:
    """Mean over users of their mean squares, between 1/16 and 16, shrunk towards the average feature."""
    d = user_squares.shape[1]
    found = private_mean_in_ball(user_squares, np.ones(d), math.sqrt(d), mu, "second moments", noise)
    typical = max(float(found.value.mean()), 0.1)
    signal = max(float(found.value.var()) - found.noise_std**2, 0.0) if d > 1 else 1.0
    shrunk = typical + (found.value - typical) * signal / (signal + found.noise_std**2)
    return np.clip(shrunk, 1 / 16, 16.0), found.event


def private_base_rate(user_rates: Vectors, mu: float, noise: NoiseSource) -> tuple[FloatArray, GaussianEvent]:
    """Mean over users of their class rates, points of the simplex around its middle."""
    k = user_rates.shape[1]
    found = private_mean_in_ball(user_rates, np.full(k, 1 / k), math.sqrt(1 - 1 / k), mu, "base rate", noise)
    # No class is taken to be rarer than what the noise could hide.
    rates = np.clip(found.value, min(max(found.noise_std, 1e-3), 0.5 / k), None)
    return rates / rates.sum(), found.event
