r"""How far: the law of users' distances, from one noisy histogram of their logarithms.

Every distance votes for a half-octave, (2^((b-1)/2), 2^(b/2)]. The counts leave with discrete Gaussian noise; all that
follows is post-processing. The law is looked for among public *shapes* at every place: the norm of a normal vector in k
dimensions, times a lognormal scale of tau octaves, with a share p in a heavier tail. A shape t that correlates with the
noisy counts c as h = <t, c>/|t|, in units of their noise, has the likelihood exp(h^2/2). The law is the average over
shapes and places, and each bin is then moved towards its count by T^2/(T^2 + sigma^2), T what the average expects, or
how far the count stands out from that and from what noise might be in some bin, if that is more: counts are believed
where noise does not drown them, also where no shape expects any (flags, categories, whole numbers). Shapes are only
roughly right, so a count c weighs as if its variance were sigma^2 + (c/5)^2: a misfit in the bulk must not decide about
the tail.

Proof: ``docs/proofs/spread.md``.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import gammainc, ndtr, ndtri

from userdp.arrays import FloatArray, IntArray
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale

BINS_PER_OCTAVE = 2
# Distances from 2^-64 to 2^64: wide enough that nobody has to give a range.
ALL_BINS = np.arange(-64 * BINS_PER_OCTAVE, 64 * BINS_PER_OCTAVE + 1)
# Counts are integers; the noise lives on a lattice this much finer.
_COUNT_RESOLUTION = 2**10

# Public shapes: dimensions, octaves by which scales vary, shares in a heavier tail.
_DIMENSIONS = (1, 2, 4, 8, 16, 64)
_SCALE_OCTAVES = (0.0, 0.25, 0.5, 1.0)
_TAIL_SHARES = (0.0, 0.03, 0.1, 0.3)
# How far a shape may be off, relative to a count.
_SHAPE_ERROR = 0.2
# A shape that stands out by less, in standard deviations of the noise, is noise.
CERTAIN = 4.5
# Users who agree stand out by far more, all in one bin: no second chance for noise.
_CERTAIN_TO_AGREE = 6.0
# A shape reaches this many octaves to either side of its place.
_REACH = 8
# Places within this many octaves of the best are averaged.
_NEAR = 2


@dataclass(frozen=True)
class DistanceLaw:
    """Shares of the distances in half-octaves that end at ``edges``.

    Those of one may all lie at its end: distances between whole numbers, and between flags, do. ``certainty`` is how
    far the best shape stands out, in standard deviations of the noise.
    """

    edges: FloatArray
    shares: FloatArray
    certainty: float

    def share_within(self, radii: FloatArray) -> FloatArray:
        """Return the share of the distances up to each radius, linear in the logarithm inside a bin."""
        return np.interp(np.log2(radii), *self._cumulated())

    def quantile(self, share: float) -> float:
        """Return the distance below which a share lies."""
        logarithms, cumulated = self._cumulated()
        return float(2 ** np.interp(share, cumulated, logarithms))

    def mean_excess(self, radii: FloatArray) -> FloatArray:
        """Return E (distance - radius)+ for each radius, with the distances of a bin spread evenly over it."""
        starts = self.edges * 2 ** (-1 / BINS_PER_OCTAVE)
        beyond = self.edges - np.clip(radii[:, None], starts, self.edges)
        whole = np.maximum((starts + self.edges) / 2 - radii[:, None], 0)
        inside = beyond**2 / (2 * (self.edges - starts))
        excess: FloatArray = np.where(radii[:, None] <= starts, whole, inside) @ self.shares
        return excess

    def times(self, factor: float) -> "DistanceLaw":
        """Return the law of the distances times a factor."""
        return replace(self, edges=self.edges * factor)

    def _cumulated(self) -> tuple[FloatArray, FloatArray]:
        ends = np.log2(self.edges)
        return np.append(ends[0] - 1 / BINS_PER_OCTAVE, ends), np.append(0.0, np.cumsum(self.shares))


def histogram_event(name: str, mu: float, n_bins: int) -> GaussianEvent:
    """Return the cost of a noisy histogram: one distance moves the counts by at most sqrt(2) in L2."""
    sensitivity = math.sqrt(2) * _COUNT_RESOLUTION * (1 + 1e-12)
    return GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), n_bins)


def distance_law(
    distances: FloatArray,
    event: GaussianEvent,
    noise: NoiseSource,
    bins: IntArray = ALL_BINS,
    unit: float = 1.0,
    finest: FloatArray | None = None,
    number: int = 0,
) -> DistanceLaw:
    """Find the law of distances, in half-octaves up to ``unit`` * 2^(bins/2), from a noisy histogram.

    Zeros vote for the lowest bin, which counts only if nothing stands out in the others: users who agree exactly say
    nothing about how far the rest are. NaN and what lies above the bins do not vote.

    With ``finest``, one number for each distance, a distance that is no larger than it votes for it, in as many bins
    again: these take the part of the lowest one.

    With a ``number`` of distances, those that no bin counts are zero; otherwise the law is that of the counted ones.

    **Guarantee**: the event's, when neighbours differ in one distance (``docs/proofs/spread.md``).
    """
    edges = unit * 2.0 ** (bins / BINS_PER_OCTAVE)
    if finest is None:
        counts = _histogram(distances, edges)
    else:
        is_fine = distances <= finest
        counts = np.append(_histogram(distances[~is_fine], edges), _histogram(finest[is_fine], edges))
    noisy = counts * _COUNT_RESOLUTION + noise.discrete_gaussian(event.scale, len(counts))
    found, noise_std = noisy / _COUNT_RESOLUTION, event.scale / _COUNT_RESOLUTION
    law = _most_likely_law(np.append(0.0, found[1 : len(bins)]), noise_std, edges, number)
    if law.certainty >= CERTAIN:
        return law
    agreed = _most_likely_law(found[-len(bins) :], noise_std, edges, number)
    return agreed if finest is None or agreed.certainty >= _CERTAIN_TO_AGREE else law


def _histogram(distances: FloatArray, edges: FloatArray) -> IntArray:
    return np.bincount(np.searchsorted(edges, distances[distances <= edges[-1]]), minlength=len(edges))


def _most_likely_law(counts: FloatArray, noise_std: float, edges: FloatArray, number: int) -> DistanceLaw:
    """Average the shapes at all places by their likelihood, then move towards the counts."""
    shapes = _shapes()
    width, n_bins = shapes.shape[1], len(counts)
    standing_out = (
        _windows(counts, width) @ (shapes / np.linalg.norm(shapes, axis=1, keepdims=True)).T / noise_std
    )
    place, _ = np.unravel_index(standing_out.argmax(), standing_out.shape)

    trust = 1 / (noise_std**2 + (_SHAPE_ERROR * np.maximum(counts, 0)) ** 2)
    lengths = np.sqrt(_windows(trust, width, beyond=noise_std**-2) @ (shapes**2).T)  # place x shape
    heights = np.maximum(_windows(trust * counts, width) @ shapes.T / lengths, 0)
    # Unlikely as far places are, their distances would be astronomical.
    heights[np.abs(np.arange(n_bins) - place) > _NEAR * BINS_PER_OCTAVE] = 0
    likelihood = np.exp((heights**2 - heights.max() ** 2) / 2)
    at_place = (likelihood / likelihood.sum() * heights / lengths) @ shapes
    expected = np.zeros(n_bins + width - 1)
    for offset in range(width):
        expected[offset : offset + n_bins] += at_place[:, offset]
    expected = expected[width // 2 : width // 2 + n_bins]
    # The farther out, the more a wrong count would cost.
    octaves = np.maximum(np.arange(n_bins) - place, 0) / BINS_PER_OCTAVE
    doubtful = noise_std * (1 + math.sqrt(2 * math.log(n_bins)) + octaves / 2)
    off = counts - expected
    squares = np.maximum(expected**2, off**2 - doubtful**2)
    found = np.maximum(expected + squares / (squares + noise_std**2) * off, 0)
    total = max(found.sum(), number)
    return DistanceLaw(
        edges,
        found / total if total > 0 else np.full(n_bins, 1 / n_bins),
        float(standing_out.max()),
    )


def _windows(values: FloatArray, width: int, beyond: float = 0.0) -> FloatArray:
    """Return the values around each bin, one row per bin."""
    padded = np.pad(values, width // 2, constant_values=beyond)
    return np.lib.stride_tricks.sliding_window_view(padded, width)


@lru_cache(maxsize=1)
def _shapes() -> FloatArray:
    """Return the share of every half-octave under each shape, at two places inside the middle one."""
    ends = np.arange(-_REACH * BINS_PER_OCTAVE, _REACH * BINS_PER_OCTAVE + 2) / BINS_PER_OCTAVE
    grid = itertools.product(_DIMENSIONS, _SCALE_OCTAVES, _TAIL_SHARES, (0.0, 0.25))
    return np.array(
        [
            np.diff((1 - p) * _normal_norm(ends - shift, k, tau) + p * _heavy_tail(ends - shift))
            for k, tau, p, shift in grid
        ]
    )


def _normal_norm(octaves: FloatArray, k: int, tau: float) -> FloatArray:
    """Law of log2 of 2^(tau Z) |N(0, I/k)| in k dimensions, Z normal, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    laws = gammainc(k / 2, k / 2 * 4.0 ** (octaves[:, None] - tau * nodes))
    law: FloatArray = laws @ (weights / weights.sum())
    return law


def _heavy_tail(octaves: FloatArray) -> FloatArray:
    """Law of a logarithm, normal by octaves up to its 90% point, and a power law from there through the median."""
    starts = float(ndtri(0.9))
    beyond = np.maximum(octaves - starts, 0)
    return np.where(octaves < starts, ndtr(octaves), 1 - 0.1 * np.exp(-math.log(5) / starts * beyond))
