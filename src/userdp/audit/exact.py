r"""Exact epsilons on one pair of tables, where the law of the output is known: no trials, no confidence.

Given a pair of tables, the output of a gated mean is a refusal or one of a family of branches: branch k is taken with
probability p_k on one table and q_k on the other, and then shows the same integer with Gaussian noise, its centres m_k
standard deviations apart. Which branch was taken is itself released (the noise level tells), so

    delta(eps) = (p_0 - e^eps q_0)_+ + sum_k p_k delta_Phi(eps + log(q_k/p_k); m_k),

with delta_Phi the Gaussian curve. The lattice is so fine that the discrete law and this one agree to nine digits.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from userdp.arrays import FloatArray
from userdp.audit.pairs import Pair
from userdp.errors import InvalidInputError
from userdp.means.certified import CertifiedMean
from userdp.means.clipped import CalibratedClippedMean, clip_to_lattice_ball
from userdp.means.friendly_core import CalibratedFriendlyCoreMean, core_sensitivity
from userdp.means.friends import concentration_index, friend_counts, ramp_numerators, weighted_mean
from userdp.means.interface import CalibratedMean
from userdp.means.sensitivity import ramp_start
from userdp.privacy.calibration import INDEX_RESOLUTION, DeferredSetting, GaussianSetting, OneSidedSetting


@dataclass(frozen=True)
class Law:
    """The outputs on two tables: refusals, and branches with their Gaussian shifts."""

    refusals: tuple[float, float]
    one: FloatArray
    other: FloatArray
    shifts: FloatArray

    @property
    def swapped(self) -> "Law":
        """The law with the tables in the other order."""
        return Law(self.refusals[::-1], self.other, self.one, self.shifts)

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence of the first table's outputs from the second's."""
        refused = max(self.refusals[0] - np.exp(epsilon) * self.refusals[1], 0.0)
        kept = self.one > 0
        p, q, m = self.one[kept], self.other[kept], np.maximum(self.shifts[kept], 1e-12)
        with np.errstate(divide="ignore"):
            level = epsilon + np.log(q) - np.log(p)
        with np.errstate(invalid="ignore"):
            curve = ndtr(m / 2 - level / m) - np.exp(level + log_ndtr(-m / 2 - level / m))
        return float(refused + (p * np.where(q > 0, np.maximum(curve, 0.0), 1.0)).sum())


def exact_epsilon(mean: CalibratedMean, pair: Pair, delta: float) -> float:
    """Return the smallest epsilon with which a calibrated mean's single answer on this pair is (epsilon, delta)-close.

    For clipped means, the certified mean with each gate, and the friendly core.

    Examples
    --------
    >>> from userdp.audit.pairs import across
    >>> from userdp.means import ClippedMean
    >>> from userdp.privacy import Budget
    >>> mean = ClippedMean(1.0).calibrate(50, 1, Budget(1.0, 1e-3))
    >>> round(exact_epsilon(mean, across(50), 1e-3), 3)     # this pair is the worst
    1.0
    """
    law = law_of(mean, pair)
    return max(_smallest_epsilon(law, delta), _smallest_epsilon(law.swapped, delta))


def law_of(mean: CalibratedMean, pair: Pair) -> Law:
    """Return the law of one answer on each table of a pair."""
    match mean:
        case CalibratedClippedMean():
            sums = [
                clip_to_lattice_ball(x, mean.centre, mean.lattice).sum(axis=0) for x in (pair.one, pair.other)
            ]
            shift = float(np.linalg.norm(sums[1] - sums[0])) / mean.event.scale
            return Law((0.0, 0.0), np.ones(1), np.ones(1), np.array([shift]))
        case CertifiedMean(setting=DeferredSetting() | OneSidedSetting() as setting):
            one, other = (_Friends(mean, x) for x in (pair.one, pair.other))
            p, q = (_pass_probability(setting, side.h) for side in (one, other))
            shift = one.distance(other, setting.index) / mean.noise_std(setting.index)
            return Law((1 - p, 1 - q), np.array([p]), np.array([q]), np.array([shift]))
        case CertifiedMean(setting=GaussianSetting() as setting):
            return _gaussian_gate(mean, setting, pair)
        case CalibratedFriendlyCoreMean():
            return _friendly_core(mean, pair)
    raise InvalidInputError(f"the law of {type(mean).__name__} on a pair is not known in closed form")


class _Friends:
    """A table on the lattice with its friend counts."""

    def __init__(self, mean: CertifiedMean | CalibratedFriendlyCoreMean, x: FloatArray) -> None:
        self.lattice, self.n = mean.lattice, mean.n_users
        self.units = mean.lattice.round(x)
        self.counts = friend_counts(self.units, mean.lattice.radius_units)
        self.h = concentration_index(self.counts)

    def weights(self, hi: int) -> FloatArray:
        return ramp_numerators(self.counts, lo=ramp_start(self.n), hi=hi).astype(np.float64)

    def distance(self, other: "_Friends", index: int) -> float:
        """Distance of the two weighted means whose ramp ends at index - 1."""
        means = [weighted_mean(side.units, side.weights(index - 1)) for side in (self, other)]
        return float(np.linalg.norm(means[1] - means[0])) * self.lattice.step


def _pass_probability(setting: DeferredSetting | OneSidedSetting, h: int) -> float:
    if isinstance(setting, DeferredSetting):
        return float(ndtr((INDEX_RESOLUTION * h - setting.threshold + 0.5) / setting.scale))
    # Pr[G_t <= h - threshold + G_0] for geometric G_0 of epsilon a and G_t of epsilon b/2.
    a, b = setting.threshold_epsilon, setting.query_epsilon / 2
    g = np.arange(int(80 / a) + 1)
    room = h - setting.threshold + g + 1
    return float((-np.expm1(-a) * np.exp(-a * g) * -np.expm1(-b * np.maximum(room, 0))).sum())


def _gaussian_gate(mean: CertifiedMean, setting: GaussianSetting, pair: Pair) -> Law:
    """One branch for each index H that the noisy index may give."""
    one, other = (_Friends(mean, x) for x in (pair.one, pair.other))
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
    one, other = (_Friends(mean, x) for x in (pair.one, pair.other))
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


def _smallest_epsilon(law: Law, delta: float) -> float:
    low, high = 0.0, 1.0
    if law.delta(low) <= delta:
        return 0.0
    while law.delta(high) > delta and high < 1e3:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if law.delta(middle) > delta else (low, middle)
    return high
