r"""What an estimator learns about the data before it descends, each stage private by itself.

All stages see one thing per user and release integers with discrete Gaussian noise; what they cost is an event of the
accounting, and everything after is post-processing. Proofs: ``docs/proofs/stages.md``.
"""

import math
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Scale:
    """Private magnitudes: what one unit of each feature is, and which features could be measured."""

    magnitude: FloatArray
    kept: BoolArray


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


def private_scale(users: Users, mu: float, noise: NoiseSource) -> tuple[Scale, GaussianEvent]:
    """Find the magnitude of every feature from a noisy histogram of the users' own magnitudes.

    A user votes for one power of two per feature (or abstains), so replacing a user moves the d histograms by at
    most sqrt(2 d) in L2.

    **Guarantee**: the event's.
    """
    d = users.n_features
    votes = nearest_powers_of_two(user_magnitudes(users))
    counts = np.stack([(votes == exponent).sum(axis=0) for exponent in _EXPONENTS], axis=1)
    sensitivity = np.sqrt(2 * d) * _COUNT_RESOLUTION * (1 + 1e-12)
    event = GaussianEvent("feature scales", sensitivity, gaussian_scale(sensitivity, mu), counts.size)
    noisy = counts * _COUNT_RESOLUTION + noise.discrete_gaussian(event.scale, counts.size).reshape(
        counts.shape
    )
    return _most_likely_scale(
        noisy / _COUNT_RESOLUTION, event.scale / _COUNT_RESOLUTION, users.n_users
    ), event


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


def _most_likely_scale(counts: FloatArray, noise_std: float, n_users: int) -> Scale:
    """Fit a public bell shape to each feature's noisy histogram, helped by what the features share."""
    bins = len(_EXPONENTS)
    template = np.zeros((bins, bins))
    for shift, mass in _TEMPLATE.items():
        template += mass * np.eye(bins, k=shift)
    # The bell's own energy, also at the ends: cut off there, it would look like a feature that few users have.
    energy = sum(mass**2 for mass in _TEMPLATE.values())
    fit = (n_users * counts @ template - n_users**2 * energy / 2) / noise_std**2
    pooled = np.maximum(counts.sum(axis=0) @ template / len(counts), 0) + 0.001 * n_users
    score = fit + np.log(pooled / pooled.sum())
    posterior = np.exp(score - score.max(axis=1, keepdims=True))
    posterior /= posterior.sum(axis=1, keepdims=True)
    best = posterior.argmax(axis=1)
    padded = np.pad(posterior, ((0, 0), (1, 1)))
    certainty = sum(padded[np.arange(len(best)), best + shift] for shift in (0, 1, 2))
    return Scale(0.6 * 2.0 ** _EXPONENTS[best], certainty >= 0.5)


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
