r"""What an estimator learns from the users' gradients besides descending, each stage private by itself.

How large gradients are; one mean gradient ahead of the descent; and how steep the loss is where it led,
along some directions. Proofs: ``docs/proofs/stages.md``.
"""

import math

import numpy as np

from userdp.arrays import FloatArray, IntArray
from userdp.engines.interface import Oracle
from userdp.estimators.balls import BallMean, ball_event, ball_mean, private_mean_in_ball
from userdp.estimators.votes import private_counts
from userdp.means.clipped import clip_to_lattice_ball
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.planning.descent import NORM_SPREAD
from userdp.privacy.accounting import GaussianEvent

# Norms lie between these halves of a power of two, in units of the root of their dimension.
_NORM_BINS = np.arange(-16, 5)
CALIBRATION = "calibration"


def private_norm(
    oracle: Oracle, theta: FloatArray, n_coordinates: int, mu: float, noise: NoiseSource
) -> tuple[float, GaussianEvent]:
    """Find the typical norm of the users' gradients: the median of a log-normal law fitted to noisy counts.

    ``n_coordinates`` of them may be other than zero. Where the counts say little, the norm of a typical gradient of
    scaled features, sqrt(n_coordinates)/4, is assumed.

    **Guarantee**: the event's; one user moves one norm.
    """
    norms = np.concatenate(oracle.ask(theta, _norms))
    unit = math.sqrt(n_coordinates)
    edges = 2.0 ** (_NORM_BINS[:-1] / 2)
    votes = np.where(np.isnan(norms), np.nan, _NORM_BINS[np.searchsorted(edges, norms / unit)])
    found = private_counts(votes[:, None], _NORM_BINS, mu, "gradient norms", noise)
    places = found.places((NORM_SPREAD,), lambda halves: -0.5 * ((halves / 2 + 2) / 1.5) ** 2)
    return unit * 2.0 ** float((places.place[0] - 0.5) / 2), found.event


def _norms(vectors: FloatArray) -> FloatArray:
    """Return each vector's norm, bit for bit a function of that vector: row after row in memory."""
    norms: FloatArray = np.sqrt((np.ascontiguousarray(vectors) ** 2).sum(axis=1))
    return norms


def private_gradient(
    oracle: Oracle, theta: FloatArray, radius: float, mu: float, noise: NoiseSource
) -> BallMean:
    """Average the users' gradients at one point, clipped; only sums leave where the users are.

    **Guarantee**: the event's; sensitivity 2 radius/n (``docs/proofs/clipped_mean.md``).
    """
    zero = np.zeros(oracle.dimension)

    def total(lattice: Lattice) -> IntArray:
        sums: IntArray = np.sum(oracle.ask(theta, _clipped_sum, zero, lattice), axis=0)
        return sums

    return ball_mean(total, zero, radius, oracle.n_users, mu, "pilot gradient", noise)


def _clipped_sum(vectors: FloatArray, centre: FloatArray, lattice: Lattice) -> IntArray:
    total: IntArray = clip_to_lattice_ball(vectors, centre, lattice).sum(axis=0)
    return total


def slopes_event(n_users: int, mu: float, n_directions: int) -> GaussianEvent:
    """Return what :func:`private_slopes` will cost, which does not depend on its radius."""
    return ball_event(Lattice.fine_enough(1.0, n_users, n_directions), mu, CALIBRATION)


def private_slopes(
    oracle: Oracle, theta: FloatArray, directions: FloatArray, radius: float, mu: float, noise: NoiseSource
) -> BallMean:
    """Mean slopes of the users' losses at one point along some directions; a user's slopes are clipped together.

    **Guarantee**: the event's, which is :func:`slopes_event`'s.
    """
    slopes = np.concatenate(oracle.ask(theta, _slopes, directions))
    return private_mean_in_ball(slopes, np.zeros(len(directions)), radius, mu, CALIBRATION, noise)


@np.errstate(all="ignore")  # an infinite gradient times 0 is NaN, and its user null
def _slopes(vectors: FloatArray, directions: FloatArray) -> FloatArray:
    """Return each vector's products with directions, bit for bit a function of that vector: row after row in memory."""
    rows = np.ascontiguousarray(vectors)
    return np.stack([(rows * direction).sum(axis=1) for direction in directions], axis=1)
