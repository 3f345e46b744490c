r"""What an estimator learns about the data before it descends, each stage private by itself.

All stages see one thing per user and release integers with discrete Gaussian noise; what they cost is an event of the
accounting, and everything after is post-processing. Proofs: ``docs/proofs/stages.md``.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.data.users import Users
from userdp.means.clipped import clip_to_lattice_ball
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

# Feature magnitudes are powers of two in this range.
_EXPONENTS = np.arange(-40, 41)
# How users' own magnitudes of one feature scatter around their typical one, in powers of two.
_TEMPLATE = {0: 0.5, 1: 0.2, -1: 0.2, 2: 0.05, -2: 0.05}
# Counts are integers; the noise lives on a lattice this much finer.
_COUNT_RESOLUTION = 2**10
_ABSTAINS = 10_000
# Targets are looked for so many units from zero, and gradients' norms between these halves of a power of two.
_LOCATIONS = np.arange(-32, 33)
_RADIUS_BINS = np.arange(-16, 5)
# How norms scatter among users, in halves of a power of two.
_RADIUS_SPREAD = 1.5


@dataclass(frozen=True)
class Scale:
    """Private magnitudes: what one unit of each feature is, and which features could be measured."""

    magnitude: FloatArray
    kept: BoolArray


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
class NoisyCounts:
    """Private histograms, one row per column, the noise of each count, and their cost."""

    counts: FloatArray
    noise_std: float
    n_users: int
    event: GaussianEvent

    def fit_of(self, shapes: FloatArray, energies: FloatArray | float) -> FloatArray:
        """Log-likelihood of each public shape (a row of shares of the users), for every column."""
        n = self.n_users
        return (n * self.counts @ shapes.T - n**2 * energies / 2) / self.noise_std**2


@dataclass(frozen=True)
class BallMean:
    """A private mean inside a ball, its noise per coordinate, and its cost."""

    value: FloatArray
    noise_std: float
    event: GaussianEvent


def private_mean_in_ball(
    vectors: FloatArray, centre: FloatArray, radius: float, mu: float, name: str, noise: NoiseSource
) -> BallMean:
    """Average the users' vectors clipped into a ball; a null user counts as its centre.

    **Guarantee**: the event's; sensitivity 2 radius/n (``docs/proofs/clipped_mean.md``).
    """
    n, d = vectors.shape
    lattice = Lattice.fine_enough(radius, n, d)
    sensitivity = 2.0 * lattice.radius_units
    event = GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), d)
    total = clip_to_lattice_ball(vectors, centre, lattice).sum(axis=0)
    noisy = total + noise.discrete_gaussian(event.scale, d)
    step = lattice.step / n
    return BallMean(centre + noisy * step, event.scale * step, event)


def private_counts(
    votes: FloatArray | IntArray, bins: FloatArray | IntArray, mu: float, name: str, noise: NoiseSource
) -> NoisyCounts:
    """Count the users that vote for each bin, column by column; a vote for no bin abstains.

    Replacing a user takes at most one vote of each of the d columns from one bin to another: sqrt(2 d) in L2.

    **Guarantee**: the event's (``docs/proofs/stages.md``).
    """
    counts = np.stack([(votes == value).sum(axis=0) for value in bins], axis=1)
    sensitivity = math.sqrt(2 * votes.shape[1]) * _COUNT_RESOLUTION * (1 + 1e-12)
    event = GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), counts.size)
    draws = noise.discrete_gaussian(event.scale, counts.size).reshape(counts.shape)
    return NoisyCounts(
        counts + draws / _COUNT_RESOLUTION, event.scale / _COUNT_RESOLUTION, votes.shape[0], event
    )


def private_scale(users: Users, mu: float, name: str, noise: NoiseSource) -> tuple[Scale, GaussianEvent]:
    """Find the magnitude of every column: each user votes for the power of two next to their own.

    **Guarantee**: the event's.
    """
    votes = nearest_powers_of_two(user_magnitudes(users))
    found = private_counts(votes, _EXPONENTS, mu, name, noise)
    return _most_likely_scale(found), found.event


def nearest_powers_of_two(magnitudes: FloatArray) -> IntArray:
    """Round log2 of positive numbers, by their bits alone; NaN abstains by a power that is no bin."""
    fraction, exponent = np.frexp(magnitudes)
    return np.where(np.isnan(magnitudes), _ABSTAINS, exponent - (fraction < math.sqrt(0.5)))


def user_magnitudes(users: Users) -> FloatArray:
    """Root mean square of each user's nonzero deviations from their first row, else of nonzero values.

    NaN where a user has neither; each row is a function of one user alone. Deviations do not depend on where the
    feature lies, which nobody knows yet.
    """
    starts, items = users.offsets[:-1], users.items_per_user
    usable = users.usable()[:, None]
    with np.errstate(all="ignore"):
        rows = np.where(np.repeat(usable, items, axis=0), users.rows, 0.0).astype(np.float64)
        first = np.repeat(rows[starts], items, axis=0)
        deviation = _rms_of_nonzero(rows - first, starts)
        value = _rms_of_nonzero(rows, starts)
    found = np.where(np.isfinite(deviation) & (deviation > 0), deviation, value)
    return np.where(usable & np.isfinite(found) & (found > 0), found, np.nan)


def _rms_of_nonzero(rows: FloatArray, starts: IntArray) -> FloatArray:
    squares: FloatArray = np.add.reduceat(rows**2, starts, axis=0)
    nonzero = np.add.reduceat(rows != 0, starts, axis=0, dtype=np.int64)
    return np.sqrt(squares / nonzero)


def _most_likely_scale(found: NoisyCounts) -> Scale:
    """Fit a public bell shape to each column's noisy histogram, helped by what the columns share."""
    bins, counts, n = len(_EXPONENTS), found.counts, found.n_users
    template = np.zeros((bins, bins))
    for shift, mass in _TEMPLATE.items():
        template += mass * np.eye(bins, k=shift)
    # The bell's own energy, also at the ends: cut off there, it would look like a feature that few users have.
    energy = sum(mass**2 for mass in _TEMPLATE.values())
    pooled = np.maximum(counts.sum(axis=0) @ template / len(counts), 0) + 0.001 * n
    prior = np.log(pooled / pooled.sum()) - 0.25 * np.abs(_EXPONENTS)  # most tables are in units people use
    posterior = _posterior(found.fit_of(template, energy) + prior)
    best = posterior.argmax(axis=1)
    padded = np.pad(posterior, ((0, 0), (1, 1)))
    certainty = sum(padded[np.arange(len(best)), best + shift] for shift in (0, 1, 2))
    return Scale(0.6 * 2.0 ** _EXPONENTS[best], certainty >= 0.5)


def _posterior(score: FloatArray) -> FloatArray:
    weights: FloatArray = np.exp(score - score.max(axis=1, keepdims=True))
    total: FloatArray = weights.sum(axis=1, keepdims=True)
    return weights / total


def private_target(
    users: Users, scale_mu: float, location_mu: float, mean_mu: float, noise: NoiseSource
) -> tuple[Target, tuple[GaussianEvent, ...]]:
    """Find unit and middle of the targets (the one column of ``users``), wherever they lie within 32 units of zero.

    The unit is 1.2 magnitudes. Users vote for the unit their mean lies in; the mean of all users is then taken in a
    ball around the most likely place, and weighted against it by what is known of either. Without a share for
    that the middle is zero.

    **Guarantee**: the events'.
    """
    scale, scale_event = private_scale(users, scale_mu, "target scale", noise)
    unit = 1.2 * float(scale.magnitude[0])
    if not location_mu:
        return Target(0.0, unit), (scale_event,)
    means = users.means() / unit
    found = private_counts(np.rint(means), _LOCATIONS, location_mu, "target location", noise)
    places = np.arange(4 * _LOCATIONS[0], 4 * _LOCATIONS[-1] + 1) / 4
    bells = _bells(_LOCATIONS, places, width=0.7)
    prior = -2 * np.log1p((places / 2) ** 2)
    posterior = _posterior(found.fit_of(bells, (bells**2).sum(axis=1)) + prior)[0]
    place = float(posterior @ places)
    variance = float(posterior @ (places - place) ** 2) + 0.05
    near = private_mean_in_ball(means, np.array([place]), 1.5, mean_mu, "target mean", noise)
    trust = variance / (variance + near.noise_std**2)
    middle = place + trust * (float(near.value[0]) - place)
    return Target(middle * unit, unit), (scale_event, found.event, near.event)


def private_clip(
    norms: FloatArray, dimension: int, quantile: float, mu: float, noise: NoiseSource
) -> tuple[Clip, GaussianEvent]:
    """Choose a clip radius: a quantile of a log-normal law whose median is fitted to noisy counts of the users' norms.

    Where the counts say little, the norm of a typical gradient of scaled features, sqrt(dimension)/4, is assumed.

    **Guarantee**: the event's; one user moves one norm.
    """
    unit = math.sqrt(dimension)
    edges = unit * 2.0 ** (_RADIUS_BINS[:-1] / 2)
    votes = np.where(np.isnan(norms), np.nan, _RADIUS_BINS[np.searchsorted(edges, norms)])[:, None]
    found = private_counts(votes, _RADIUS_BINS, mu, "clip radius", noise)
    bells = _bells(_RADIUS_BINS, _RADIUS_BINS, _RADIUS_SPREAD)
    prior = -0.5 * ((_RADIUS_BINS / 2 + 2) / 1.5) ** 2
    posterior = _posterior(found.fit_of(bells, (bells**2).sum(axis=1)) + prior)[0]
    middle = float(posterior @ _RADIUS_BINS) - 0.5
    normal = NormalDist()
    radius = unit * 2.0 ** ((middle + _RADIUS_SPREAD * normal.inv_cdf(quantile)) / 2)
    scores = np.array([normal.inv_cdf((i + 0.5) / 200) for i in range(200)])
    typical = unit * 2.0 ** ((middle + _RADIUS_SPREAD * scores) / 2)
    return Clip(radius, float(np.minimum(1.0, radius / typical).mean())), found.event


def _bells(bins: IntArray, places: FloatArray | IntArray, width: float) -> FloatArray:
    """Return shares of users by bin, if they scatter with a standard deviation of ``width`` bins around each place."""
    bells: FloatArray = np.exp(-0.5 * ((bins - places[:, None]) / width) ** 2)
    total: FloatArray = bells.sum(axis=1, keepdims=True)
    return bells / total


def private_centre(
    user_means: FloatArray, mu: float, passes: int, noise: NoiseSource
) -> tuple[FloatArray, tuple[GaussianEvent, ...]]:
    """Locate the users' means (in units of their magnitude) by clipping around a centre that moves.

    The ball halves from pass to pass, and every coordinate is shrunk towards zero by the noise it carries.
    """
    d = user_means.shape[1]
    centre = np.zeros(d)
    events = []
    for number in range(passes):
        radius = 0.4 * math.sqrt(d) * 2.0 ** (passes - 1 - number)
        name = f"centre, pass {number + 1}" if passes > 1 else "centre"
        found = private_mean_in_ball(user_means, centre, radius, mu / math.sqrt(passes), name, noise)
        shrink = 1 - found.noise_std**2 / np.maximum(found.value**2, found.noise_std**2)
        centre = found.value * shrink
        events.append(found.event)
    return centre, tuple(events)


def private_second_moment(
    user_squares: FloatArray, mu: float, noise: NoiseSource
) -> tuple[FloatArray, GaussianEvent]:
    """Mean over users of their mean squares, between 1/16 and 16, shrunk towards the average feature."""
    d = user_squares.shape[1]
    found = private_mean_in_ball(user_squares, np.ones(d), math.sqrt(d), mu, "second moments", noise)
    typical = max(float(found.value.mean()), 0.1)
    signal = max(float(found.value.var()) - found.noise_std**2, 0.0)
    shrunk = typical + (found.value - typical) * signal / (signal + found.noise_std**2)
    return np.clip(shrunk, 1 / 16, 16.0), found.event


def private_base_rate(
    user_rates: FloatArray, mu: float, noise: NoiseSource
) -> tuple[FloatArray, GaussianEvent]:
    """Mean over users of their class rates, points of the simplex around its middle."""
    k = user_rates.shape[1]
    found = private_mean_in_ball(user_rates, np.full(k, 1 / k), math.sqrt(1 - 1 / k), mu, "base rate", noise)
    # No class is taken to be rarer than what the noise could hide.
    rates = np.clip(found.value, min(max(found.noise_std, 1e-3), 0.5 / k), None)
    return rates / rates.sum(), found.event
