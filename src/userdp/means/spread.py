r"""How far apart: the law of users' distances, from one noisy histogram of their logarithms.

Every distance votes for a half-octave, (2^((b-1)/2), 2^(b/2)]. The counts leave with discrete Gaussian noise; all
that follows is post-processing:

1. the bell (normal in the logarithm, public widths) that correlates best with the noisy counts says where they are;
2. a bin's count is shrunk towards the bell's by T^2/(T^2 + sigma^2), T the bell's count and sigma the noise: where
   noise drowns the counts the bell is believed, elsewhere the counts.

Replacing one distance moves the counts by at most sqrt(2) in L2. Proof: ``docs/proofs/spread.md``.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from userdp.arrays import FloatArray, IntArray
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

BINS_PER_OCTAVE = 2
# Distances from 2^-64 to 2^64: wide enough that nobody has to give a range.
ALL_BINS = np.arange(-64 * BINS_PER_OCTAVE, 64 * BINS_PER_OCTAVE + 1)
# Standard deviations of the bells, in octaves.
_WIDTHS = 2.0 ** np.arange(-3, 1.5, 0.5)
# Beyond this share a bell continues as a power law through its median.
_TAIL = 0.1
_TAIL_STARTS = float(-ndtri(_TAIL))
# Counts are integers; the noise lives on a lattice this much finer.
_COUNT_RESOLUTION = 2**10


@dataclass(frozen=True)
class DistanceLaw:
    """Distances, as shares of half-octaves; ``certainty`` is the bell's height in standard deviations of its noise."""

    edges: FloatArray  # upper ends of the bins
    shares: FloatArray
    certainty: float

    def share_within(self, radii: FloatArray) -> FloatArray:
        """Return the share of the distances up to each radius, linear in the logarithm inside a bin."""
        return np.interp(
            np.log2(radii), np.log2(self._ends()), np.concatenate([[0.0], np.cumsum(self.shares)])
        )

    def mean_excess(self, radii: FloatArray) -> FloatArray:
        """Return E (distance - radius)+ for each radius, with every bin at its middle."""
        middle = self.edges * 2 ** (-0.5 / BINS_PER_OCTAVE)
        return np.maximum(middle - radii[:, None], 0) @ self.shares

    def quantile(self, share: float) -> float:
        """Return the distance below which that share lies."""
        cumulated = np.concatenate([[0.0], np.cumsum(self.shares)])
        return float(2 ** np.interp(share, cumulated, np.log2(self._ends())))

    def _ends(self) -> FloatArray:
        return np.concatenate([[self.edges[0] * 2 ** (-1 / BINS_PER_OCTAVE)], self.edges])


def histogram_event(name: str, mu: float, bins: IntArray) -> GaussianEvent:
    """Return the cost of a noisy histogram: sensitivity sqrt(2), each distance votes for at most one bin."""
    sensitivity = math.sqrt(2) * _COUNT_RESOLUTION * (1 + 1e-12)
    return GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), len(bins))


def distance_law(
    distances: FloatArray, event: GaussianEvent, noise: NoiseSource, bins: IntArray = ALL_BINS, unit: float = 1.0
) -> DistanceLaw:
    """Find the law of positive distances, in half-octaves ``unit`` * 2^(bins/2), from a noisy histogram.

    Zeros, NaN and what lies outside of the bins do not vote.

    **Guarantee**: the event's, when neighbours differ in one distance (``docs/proofs/spread.md``).
    """
    edges = unit * 2.0 ** (bins / BINS_PER_OCTAVE)
    below = edges[0] * 2 ** (-1 / BINS_PER_OCTAVE)
    place = np.searchsorted(edges, distances, side="left")
    votes = (distances > below) & (distances <= edges[-1])
    counts = np.bincount(place[votes], minlength=len(bins))
    noisy = counts * _COUNT_RESOLUTION + noise.discrete_gaussian(event.scale, len(bins))
    return _fit(noisy / _COUNT_RESOLUTION, event.scale / _COUNT_RESOLUTION, edges)


def _fit(counts: FloatArray, noise_std: float, edges: FloatArray) -> DistanceLaw:
    """Fit the best bell, then shrink the counts towards it."""
    bells = _bells(len(edges))
    energy = np.sqrt((bells**2).sum(axis=1))
    height = bells @ counts / energy
    best = int(np.argmax(height))
    bell = bells[best] * max(height[best], 0.0) / energy[best]
    weight = bell**2 / (bell**2 + noise_std**2)
    found = np.maximum(bell + weight * (counts - bell), 0.0)
    total = found.sum()
    shares = found / total if total > 0 else bells[best] / bells[best].sum()
    return DistanceLaw(edges, shares, float(height[best] / noise_std))


def _bells(n_bins: int) -> FloatArray:
    """Return the share of each bin under every bell: all widths, centres a quarter of an octave apart."""
    ends = np.arange(n_bins + 1) / BINS_PER_OCTAVE
    centres = np.arange(0, ends[-1] + 0.01, 0.25)
    return np.concatenate([np.diff(_bell((ends - centres[:, None]) / width), axis=1) for width in _WIDTHS])


def _bell(z: FloatArray) -> FloatArray:
    """Cumulate a normal law up to its 90% point; beyond, the logarithm's tail is exponential, halving as from the median."""
    slope = math.log(0.5 / _TAIL) / _TAIL_STARTS
    return np.where(z < _TAIL_STARTS, ndtr(z), 1 - _TAIL * np.exp(-slope * np.maximum(z - _TAIL_STARTS, 0)))
