r"""What an estimator learns about the data before it descends, each stage private by itself.

All stages see one thing per user and release integers with discrete Gaussian noise; what they cost is an event of the
accounting, and everything after is post-processing. Proofs: ``docs/proofs/stages.md``.
"""

import math

import numpy as np

from userdp.arrays import FloatArray
from userdp.estimators.balls import BallMean, private_mean_in_ball, shrunk, weighted
from userdp.estimators.per_user import Vectors
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent

# How far from a column's centre looks see it: variance, in squared units.
_PLACE_VARIANCE = 0.15
# Users' rates of booleans are clipped to so many of their typical norms.
_RATE_RADIUS = 1.2
# So little importance is faint.
_FAINT = 0.05
# Rates that a boolean may have.
_RATES = np.concatenate([2.0 ** np.arange(-10, -0.9, 0.5), 1 - 2.0 ** np.arange(-1.5, -5.1, -0.5)])


def private_rates(
    user_rates: Vectors, norm: float, mu: float, noise: NoiseSource
) -> tuple[FloatArray, FloatArray, GaussianEvent]:
    """How often each boolean is true, most likely; and one unit of each, a standard deviation.

    A unit is no finer than the noise: a column that is hardly ever true is not blown up. One that may never be true,
    for all that is known, and would tell little beside the others has an infinite unit: it would bring but noise.

    **Guarantee**: the event's.
    """
    d = user_rates.shape[1]
    found = private_mean_in_ball(user_rates, np.zeros(d), _RATE_RADIUS * norm, mu, "boolean rates", noise)
    rates = likely_rates(found)
    told = np.clip(rates, min(found.noise_std, 0.3), 0.5)
    is_faint = (np.minimum(rates, 1 - rates) < found.noise_std) & (importance_of(rates) < _FAINT)
    return rates, np.where(is_faint, np.inf, np.sqrt(told * (1 - told))), found.event


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


def importance_of(rates: FloatArray) -> FloatArray:
    """How much may be expected of booleans: what is rarely true, or rarely false, can tell little.

    If coefficients of unscaled booleans are of one size, a boolean explains as much as its variance.
    """
    variance = rates * (1 - rates)
    found: FloatArray = variance * variance.sum() / (variance**2).sum()
    return found


def private_centre(
    user_means: Vectors, places: FloatArray, mu: float, noise: NoiseSource
) -> tuple[FloatArray, GaussianEvent]:
    """Average the users' means (in units) in a ball around where looks saw them; weigh the one against the other.

    **Guarantee**: the event's.
    """
    d = user_means.shape[1]
    near = private_mean_in_ball(user_means, places, math.sqrt(d), mu, "centre", noise)
    return weighted(places, np.full(d, _PLACE_VARIANCE), near), near.event


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
