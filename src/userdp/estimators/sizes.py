"""The first look at numbers: how large they are, of which sign, and how widely their sizes scatter."""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import ndtr

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.data.users import Users
from userdp.estimators.shapes import fit, posterior
from userdp.means.votes import ABSTAINS, NoisyCounts

# Powers of four that a size may have, which every float of a sane table does; a bin is a sign and a power.
_POWERS = 20
FIRST_BINS = np.arange(-2 * _POWERS - 1, 2 * _POWERS + 2)
# A size is found if it lies this close, in powers of two, or as close as users' do, with this probability.
_CLOSE, _CERTAIN = 1.5, 0.6
# A column is taken to be of one sign, or to spread over powers of ten, from these probabilities on.
_OF_ONE_SIGN, _SPREADS = 0.7, 0.5
# Where sizes scatter, a log-normal law's unit is larger than a typical size, but not by more than exp(_TAIL): few rows
# lie out there.
_TAIL = 0.7
# So many units to either side of a column's centre are let in: fewest where the logarithms of sizes have this standard
# deviation.
WIDEST, _NARROWEST, _SCATTERED = 8.0, 3.0, 1.0
# Laws of sizes in the first look, with their prior probabilities: how they scatter, in powers of two; which share of
# the users is positive; which is zero.
_SIZE_SPREADS = {0.35: 0.4, 0.8: 0.35, 1.4: 0.15, 2.2: 0.1}
_POSITIVE = {1.0: 0.4, 0.8: 0.1, 0.5: 0.3, 0.2: 0.08, 0.0: 0.12}
_ZERO = {0.0: 0.7, 0.3: 0.1, 0.6: 0.1, 0.8: 0.06, 0.9: 0.04}
# A million units are no reason to give up (per power of two), and a column of zeros is no surprise.
_PER_POWER, _ONLY_ZEROS = -0.15, 0.02
# A size's counts are looked at so far to either side; it lies so many powers of two below the edge of its bin.
_WINDOW, _OFFSETS = 4, (0.0, 0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Sizes:
    """What the first look says of each column.

    Attributes
    ----------
    size : array
        Typical root mean square of a user's values that are not zero.
    positive, zero : array
        Share of the users that are positive, among those that are not zero; and share that is zero.
    log_spread : array
        How widely users' sizes scatter, a standard deviation of logarithms.
    has_one_sign, spreads, found : array of bool
        Whether nearly all users have one sign, whether their sizes spread over powers of ten, whether there is a size.
    """

    size: FloatArray
    positive: FloatArray
    zero: FloatArray
    log_spread: FloatArray
    has_one_sign: BoolArray
    spreads: BoolArray
    found: BoolArray

    @property
    def sign(self) -> FloatArray:
        """The usual sign."""
        return np.where(self.positive >= 0.5, 1.0, -1.0)

    @property
    def mean(self) -> FloatArray:
        """Mean of the column, as far as it is known: a little less than the size, or that of a log-normal law."""
        of_sizes = np.where(self.spreads, np.exp(np.minimum(self.log_spread**2, _TAIL) / 2), 0.8)
        return (2 * self.positive - 1) * (1 - self.zero) * of_sizes * self.size

    @property
    def bound(self) -> FloatArray:
        """How far, in units, values are let in: where sizes scatter widely few rows would say everything."""
        bound: FloatArray = np.clip(_NARROWEST * (_SCATTERED / self.log_spread) ** 1.5, _NARROWEST, WIDEST)
        return bound

    @property
    def mean_square(self) -> FloatArray:
        """Mean of its squares."""
        largest: FloatArray = self.size * np.exp(np.minimum(self.log_spread**2, _TAIL))
        return (1 - self.zero) * largest**2


def signed_sizes(users: Users) -> FloatArray:
    """Root mean square of each user's values, with the sign of their mean; NaN if null or if squares overflow."""
    with np.errstate(all="ignore"):
        squares = replace(users, rows=users.rows.astype(np.float64) ** 2, targets=None)
        return np.copysign(np.sqrt(squares.means()), users.means())


def signed_powers(values: FloatArray) -> IntArray:
    """Return the bin of each number, by its bits: 0 for zero, else its sign times 21 + b, 4^(b-1) <= |x| < 4^b."""
    _, exponent = np.frexp(values)
    power = np.clip(-(-exponent // 2), -_POWERS, _POWERS) + _POWERS + 1
    bins = np.where(values == 0, 0, np.where(np.signbit(values), -power, power))
    return np.where(np.isfinite(values), bins, ABSTAINS)


@cache
def _size_laws() -> tuple[FloatArray, FloatArray]:
    """Return the laws of sizes (offset, spread, positive, zero, log prior) and what each expects around its place."""
    laws, expected = [], []
    edges = 2 * np.arange(-_WINDOW - 1, _WINDOW + 1.0)
    for offset, (spread, p), (positive, q), (zero, r) in product(
        _OFFSETS, _SIZE_SPREADS.items(), _POSITIVE.items(), _ZERO.items()
    ):
        bell = (1 - zero) * np.diff(ndtr((edges + offset) / spread))
        laws.append((offset, spread, positive, zero, math.log(p * q * r)))
        expected.append([*(positive * bell), *((1 - positive) * bell), zero])
    return np.array(laws), np.array(expected)


def sizes_of(counts: NoisyCounts) -> Sizes:
    """Fit every law at every place; keep what is close to the likeliest."""
    shares, noise_std = counts.counts / counts.n_voters, counts.noise_std / counts.n_voters
    middle = len(FIRST_BINS) // 2
    sides = shares[:, middle + 1 :], shares[:, middle - 1 :: -1]
    seen = [
        sliding_window_view(np.pad(side, ((0, 0), (_WINDOW, _WINDOW))), 2 * _WINDOW + 1, axis=1)
        for side in sides
    ]
    zeros = np.broadcast_to(shares[:, middle, None, None], (*seen[0].shape[:2], 1))
    laws, expected = _size_laws()
    windows_fit = fit(
        np.concatenate([*seen, zeros], axis=2).reshape(-1, expected.shape[1]), noise_std, expected
    )
    offset, spread, positive, zero, log_prior = laws.T
    power = 2 * np.arange(-_POWERS, _POWERS + 1)[:, None] - offset
    score = windows_fit.reshape(len(shares), *power.shape) + log_prior + _PER_POWER * np.abs(power)
    score = score.reshape(len(shares), -1) - np.logaddexp.reduce(
        (log_prior + _PER_POWER * np.abs(power)).ravel()
    )
    only_zeros = fit(shares[:, [middle]], noise_std, np.ones((1, 1))) + math.log(_ONLY_ZEROS)
    weights = posterior(np.hstack([score, only_zeros]))
    power = power.ravel()
    spread, positive, zero = (np.tile(values, 2 * _POWERS + 1) for values in (spread, positive, zero))
    best = weights.argmax(axis=1)
    has_size = best < len(power)
    likeliest = np.where(has_size, best, 0)
    reach = np.maximum(_CLOSE, spread[likeliest])
    near = weights[:, :-1] * (np.abs(power - power[likeliest, None]) <= reach[:, None])
    certainty = near.sum(axis=1)
    near = near / np.maximum(certainty, 1e-300)[:, None]
    return Sizes(
        size=2.0 ** (near @ power),
        positive=near @ positive,
        zero=near @ zero,
        log_spread=0.8 * math.log(2) * (near @ spread),
        has_one_sign=np.maximum(near @ (positive >= 0.75), near @ (positive <= 0.25)) > _OF_ONE_SIGN,
        spreads=near @ (spread >= 1.2) > _SPREADS,
        found=has_size & (certainty >= _CERTAIN),
    )
