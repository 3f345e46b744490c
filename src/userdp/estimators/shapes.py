"""What noisy counts may look like: public shapes, and how well each fits.

Counts may be lumpy where a shape expects many: real columns have favourite values.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np
from scipy.special import ndtr

from userdp.arrays import FloatArray, IntArray
from userdp.means.votes import NoisyCounts

# Bins of a later look to either side, beside the two for whatever lies beyond; in the second look one size is ten bins
# and zero lies nine bins to the left.
REACH, BINS_OF_SIZE, ZERO_BIN = 24, 10, -9
LATER_BINS: IntArray = np.arange(-REACH - 1, REACH + 2)
_EDGES = np.concatenate([[-np.inf], np.arange(-REACH - 0.5, REACH + 1), [np.inf]])
# Counts that a shape expects are lumpy like those of this many draws, and off by this share of the users everywhere.
_DRAWS, _MISFIT = 20.0, 0.01


@dataclass(frozen=True)
class Shapes:
    """What counts may look like, as shares of the users: one row for each shape, its prior, and its moments in bins.

    ``others`` is the share of the rows that are not of a favourite value, 0 if there is none.
    """

    expected: FloatArray
    log_prior: FloatArray
    mean: FloatArray
    spread: FloatArray
    others: FloatArray

    def moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the mean, how far off it may be, and how wide columns are around it: the doubt makes them wider."""
        mean: FloatArray = weights @ self.mean
        doubt = np.sqrt(np.maximum(weights @ self.mean**2 - mean**2, 0.0))
        return mean, doubt, np.hypot(np.exp(weights @ np.log(self.spread)), doubt)


def log_likelihood(counts: NoisyCounts, expected: FloatArray) -> FloatArray:
    """Log likelihood of every shape, over that of no counts at all, for every column."""
    return fit(counts.counts / counts.n_voters, counts.noise_std / counts.n_voters, expected)


def fit(shares: FloatArray, noise_std: float, expected: FloatArray) -> FloatArray:
    """Log likelihood of every shape, over that of no counts at all, for shares of the users in bins."""
    base = noise_std**2 + _MISFIT**2
    variance = base + expected * (1 - expected) / (_DRAWS + 1)
    constant = 0.5 * (expected**2 / variance + np.log(variance / base)).sum(axis=1)
    found: FloatArray = (
        shares**2 @ (0.5 / base - 0.5 / variance).T + shares @ (expected / variance).T - constant
    )
    return found


def posterior(score: FloatArray) -> FloatArray:
    """Return probabilities of the shapes, for every column."""
    weights = np.exp(score - score.max(axis=1, keepdims=True))
    shares: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return shares


# Laws of a column of positive numbers whose root mean square is about 1, with their prior probabilities: its mean over
# that, by how many powers of two it is larger, the share of zeros; and logarithms' standard deviations.
_MEANS = {
    0.99995: 0.12,
    0.995: 0.15,
    0.98: 0.13,
    0.95: 0.12,
    0.9: 0.12,
    0.8: 0.12,
    0.7: 0.08,
    0.55: 0.06,
    0.35: 0.05,
    0.0: 0.05,
}
_LARGER = tuple(0.025 * i for i in range(-64, 65))
_ZEROS = {0.0: 0.7, 0.25: 0.1, 0.5: 0.1, 0.75: 0.1}
_LOG_SPREADS, _LOG_NORMAL = (0.4, 0.8, 1.3), 0.1
# Columns with one favourite value: how often it is another, anywhere up to twice as large; how far that is, in sizes.
_OTHERS, _FAVOURITE, AWAY = (0.15, 0.3, 0.5), 0.003, 3**-0.5


# What a law expects of the bins, its log prior, mean and spread in sizes, and the share of other values.
_Law: TypeAlias = tuple[FloatArray, float, float, float, float]


@cache
def second_shapes() -> Shapes:
    """Shapes of the second look: normal laws with or without zeros, log-normal ones, and favourite values."""
    return _in_bins([*_normal_laws(), *_log_normal_laws(), *_favourite_laws()])


def _normal_laws() -> Iterator[_Law]:
    at_zero = np.diff((_EDGES > ZERO_BIN).astype(float))
    for (mean_share, p), larger, (zero, q) in product(_MEANS.items(), _LARGER, _ZEROS.items()):
        size = 2.0**larger / math.sqrt(1 - zero)
        mean, spread = mean_share * size, math.sqrt(1 - mean_share**2) * size
        bell = np.diff(ndtr(((_EDGES - ZERO_BIN) / BINS_OF_SIZE - mean) / spread))
        variance = (1 - zero) * size**2 - ((1 - zero) * mean) ** 2
        log_prior = math.log(p * q) - 0.5 * (larger / 0.6) ** 2
        yield (1 - zero) * bell + zero * at_zero, log_prior, (1 - zero) * mean, math.sqrt(variance), 0.0


def _log_normal_laws() -> Iterator[_Law]:
    inside = np.maximum((_EDGES - ZERO_BIN) / BINS_OF_SIZE, 1e-12)
    for spread, larger in product(_LOG_SPREADS, (*_LARGER, -1.0, -1.5, -2.0)):
        median = math.exp(-(spread**2)) * 2.0**larger
        bell = np.diff(ndtr(np.log(inside / median) / spread))
        mean = median * math.exp(spread**2 / 2)
        log_prior = math.log(_LOG_NORMAL) - 0.5 * (max(abs(larger) - 0.5, 0.0) / 0.5) ** 2
        yield bell, log_prior, mean, mean * math.sqrt(math.expm1(spread**2)), 0.0


def _favourite_laws() -> Iterator[_Law]:
    edges = (_EDGES - ZERO_BIN) / BINS_OF_SIZE
    for others, larger in product(_OTHERS, _LARGER):
        mean = 2.0**larger
        bell, anywhere = np.diff(ndtr((edges - mean) / 0.03)), np.diff(np.clip(edges / (2 * mean), 0, 1))
        log_prior = math.log(_FAVOURITE) - 0.5 * (larger / 0.6) ** 2
        spread = math.sqrt(others) * AWAY * mean
        yield (1 - others) * bell + others * anywhere, log_prior, mean, spread, others


def _in_bins(laws: list[_Law]) -> Shapes:
    """Put moments of sizes into bins."""
    expected, log_prior, mean, spread, others = (np.array(column) for column in zip(*laws, strict=True))
    return Shapes(expected, log_prior, mean * BINS_OF_SIZE + ZERO_BIN, spread * BINS_OF_SIZE, others)


@cache
def zoom_shapes() -> Shapes:
    """Shapes of a zoom: normal laws, anywhere; and favourite values, the others beyond what is in sight."""
    places, widths = (
        np.arange(-REACH, REACH + 0.1, 0.5),
        (0.15, 0.3, 0.6, 1.0, 1.5, 2.2, 3.3, 5.0, 8.0, 15.0, 30.0),
    )
    mean, spread = (values.ravel() for values in np.meshgrid(places, widths))
    expected = np.diff(ndtr((_EDGES - mean[:, None]) / spread[:, None]), axis=1)
    others, value = (values.ravel() for values in np.meshgrid(_OTHERS, places))
    favourite = np.diff(ndtr((_EDGES - value[:, None]) / widths[0]), axis=1)
    beyond = np.zeros(len(LATER_BINS))
    beyond[[0, -1]] = 0.5
    return Shapes(
        np.vstack([expected, (1 - others[:, None]) * favourite + others[:, None] * beyond]),
        -np.log(np.append(np.full(len(mean), len(mean)), np.full(len(value), len(value)))),
        np.append(mean, value),
        np.append(spread, np.full(len(value), widths[0])),
        np.append(np.zeros(len(mean)), others),
    )
