r"""What a mechanism shows on two neighbouring inputs, where it can be written down: branches and Gaussian shifts.

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
from userdp.means.certified import CertifiedMean
from userdp.means.friendly_core import CalibratedFriendlyCoreMean
from userdp.means.friends import concentration_index, friend_counts, ramp_numerators, weighted_mean
from userdp.means.sensitivity import ramp_start


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

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with which the two laws are (epsilon, delta)-close, in both directions."""
        return max(_smallest_epsilon(self, delta), _smallest_epsilon(self.swapped, delta))


class Friends:
    """A table on the lattice with its friend counts."""

    def __init__(self, mean: CertifiedMean | CalibratedFriendlyCoreMean, x: FloatArray) -> None:
        self.lattice, self.n = mean.lattice, mean.n_users
        self.units = mean.lattice.round(x)
        self.counts = friend_counts(self.units, mean.lattice.radius_units)
        self.h = concentration_index(self.counts)

    def weights(self, hi: int) -> FloatArray:
        """Weights of a ramp that ends at ``hi``."""
        return ramp_numerators(self.counts, lo=ramp_start(self.n), hi=hi).astype(np.float64)

    def mean(self, index: int) -> FloatArray:
        """Weighted mean whose ramp ends at index - 1."""
        return weighted_mean(self.units, self.weights(index - 1)) * self.lattice.step

    def distance(self, other: "Friends", index: int) -> float:
        """Distance of the two weighted means whose ramp ends at index - 1."""
        return float(np.linalg.norm(other.mean(index) - self.mean(index)))


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
