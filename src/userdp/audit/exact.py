"""Exact epsilons on one pair of inputs, where the law of the output is known: no trials, no confidence.

The law is that of :mod:`userdp.audit.laws`; sessions of several rounds are in :mod:`userdp.audit.sessions`.
"""

import numpy as np
from scipy.special import ndtr

from userdp.arrays import FloatArray
from userdp.audit.laws import Friends, Law
from userdp.audit.pairs import Pair
from userdp.audit.sessions import session_law
from userdp.errors import InvalidInputError
from userdp.means.certified import CertifiedMean
from userdp.means.clipped import CalibratedClippedMean, clip_to_lattice_ball
from userdp.means.friendly_core import CalibratedFriendlyCoreMean, core_sensitivity
from userdp.means.interface import CalibratedMean
from userdp.means.paper import PaperMean
from userdp.means.sensitivity import ramp_start
from userdp.privacy.calibration import INDEX_RESOLUTION, DeferredSetting, GaussianSetting, OneSidedSetting


def exact_epsilon(mean: CalibratedMean, pair: Pair, delta: float) -> float:
    """Return the smallest epsilon with which all that a calibrated mean shows on this pair is (epsilon, delta)-close.

    For one answer of clipped means, the certified mean with each gate, and the friendly core; and for sessions of
    several rounds (a pair of arrays of shape (rounds, n, d)) of the deferred and the one-sided gate and of the paper's.

    Examples
    --------
    >>> from userdp.audit.pairs import across
    >>> from userdp.means import ClippedMean
    >>> from userdp.privacy import Budget
    >>> mean = ClippedMean(1.0).calibrate(50, 1, Budget(1.0, 1e-3))
    >>> round(exact_epsilon(mean, across(50), 1e-3), 3)     # this pair is the worst
    1.0
    """
    return law_of(mean, pair).epsilon(delta)


def law_of(mean: CalibratedMean, pair: Pair) -> Law:
    """Return the law of what is shown on each side of a pair."""
    match mean:
        case CalibratedClippedMean():
            sums = [
                clip_to_lattice_ball(x, mean.centre, mean.lattice).sum(axis=0) for x in (pair.one, pair.other)
            ]
            shift = float(np.linalg.norm(sums[1] - sums[0])) / mean.event.scale
            return Law((0.0, 0.0), np.ones(1), np.ones(1), np.array([shift]))
        case CertifiedMean(setting=DeferredSetting() | OneSidedSetting()) | PaperMean():
            return session_law(mean, pair).law
        case CertifiedMean(setting=GaussianSetting() as setting):
            return _gaussian_gate(mean, setting, pair)
        case CalibratedFriendlyCoreMean():
            return _friendly_core(mean, pair)
    raise InvalidInputError(f"the law of {type(mean).__name__} on a pair is not known in closed form")


def _gaussian_gate(mean: CertifiedMean, setting: GaussianSetting, pair: Pair) -> Law:
    """One branch for each index H that the noisy index may give."""
    one, other = (Friends(mean, x) for x in (pair.one, pair.other))
    first, n = ramp_start(mean.n_users) + 2, mean.n_users
    ends = setting.margin + INDEX_RESOLUTION * np.arange(first, n + 1) - 0.5

    def split(h: int) -> tuple[float, FloatArray]:
        below = ndtr((ends - INDEX_RESOLUTION * h) / setting.scale)
        return float(below[0]), np.diff(np.append(below, 1.0))

    (p_0, p), (q_0, q) = split(one.h), split(other.h)
    shifts = np.array([one.distance(other, H) / mean.noise_std(H) for H in range(first, n + 1)])
    return Law((p_0, q_0), p, q, shifts)


def _friendly_core(mean: CalibratedFriendlyCoreMean, pair: Pair) -> Law:
    """One branch for each total weight that the noisy count may give."""
    setting, n = mean.setting, mean.n_users
    one, other = (Friends(mean, x) for x in (pair.one, pair.other))
    totals = [int(side.weights(n).sum()) for side in (one, other)]
    numerators = np.arange(n * setting.full_weight + 1)
    weights = numerators / setting.full_weight * (1 - 1e-15)
    sensitivities = np.array([core_sensitivity(weight, n, 1.0) for weight in weights])
    first = int(np.argmax(np.isfinite(sensitivities)))
    ends = setting.margin + setting.resolution * numerators[first:] - 0.5

    def split(total: int) -> tuple[float, FloatArray]:
        below = ndtr((ends - setting.resolution * total) / setting.scale)
        return float(below[0]), np.diff(np.append(below, 1.0))

    (p_0, p), (q_0, q) = split(totals[0]), split(totals[1])
    shift = one.distance(other, n + 1) / (mean.mean_event(float(n)).scale * mean.lattice.answer_step)
    return Law((p_0, q_0), p, q, shift * core_sensitivity(float(n), n, 1.0) / sensitivities[first:])
