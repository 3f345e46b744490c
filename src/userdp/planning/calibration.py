r"""What clipping does to a model's length and intercept: what to expect, and what to believe once users were asked.

Clipped users count by their direction alone. Of a classifier that favours users who are predicted well already, so that
it goes too far, the more so the more is clipped; and it favours the commoner class, as in a regression it favours the
bulk of the targets over a long tail, so that the intercept is off. Slopes of a regression keep their length: large
residuals of either sign are cut alike.

The answer is therefore sought once more among a few numbers: the length of the coefficients (classifiers only), and the
intercepts. Before anybody is asked the length is expected to be somewhat too large; an intercept is either about right
or far off (in a regression the further, the more is clipped). A noisy mean gradient g along these numbers, with
curvature h, is an observation phi - g/h of the best ones, of standard deviation sigma/h, and what is believed of them
follows by Bayes' rule.

The constants come from trials on four real tables (flights, retail, jester, chem97) and on those of
``benchmarks/holdout``.
"""

import math
from dataclasses import dataclass

import numpy as np

from userdp.arrays import FloatArray
from userdp.planning.descent import share_kept

# Each time users are asked, the gradient is taken at what was believed before.
TIMES_ASKED = 2
# With fewer effective users nobody is asked.
_FEWEST_USERS = 20
# Shares of what is left: for one number, content with so many effective users of its own.
_SHARES, _USERS_NEEDED = (0.03, 0.06), 100
# How far a classifier ought to have gone, as a share of the way: where all is clipped, and one standard deviation.
_LENGTH, _LENGTH_SPREAD = 0.75, 0.25
# How far off intercepts are, one standard deviation, if they are about right, and if they are far off: in log odds, and
# in units of the target where all is clipped.
_ABOUT_RIGHT, _FAR_OFF_LOG_ODDS, _FAR_OFF_TARGET = 0.02, 0.8, 0.5
# Where users' gradients are clipped, by coordinate: in typical ones, and a classifier's at most at this; the wider in
# these limits, the more effective users there are.
_CLASS_WIDTH, _CLASS_LIMITS, _CLASS_USERS = 2.0, (0.6, 1.2), 500
_TARGET_LIMITS, _TARGET_USERS = (4.0, 10.0), 80


def calibration_share(effective_users: float, n_numbers: int) -> float:
    """Share of what is left that is spent on asking about so many numbers, all times together."""
    if effective_users < _FEWEST_USERS or not n_numbers:
        return 0.0
    low, high = _SHARES
    needed = n_numbers * (_USERS_NEEDED / effective_users) ** 2
    return min(max(needed, low), high * min(n_numbers, 2))


def calibration_radius(
    effective_users: float, typical: float, n_numbers: int, is_classification: bool, log_odds: float
) -> float:
    """Where a user's gradient in these numbers is clipped, for a ``typical`` gradient by coordinate.

    Users of the rarer class have gradients exp(|log odds|) times as large as the others': they are let in whole.
    """

    def within(limits: tuple[float, float], width: float) -> float:
        return min(max(width, limits[0]), limits[1])

    if is_classification:
        widest = within(_CLASS_LIMITS, effective_users / _CLASS_USERS)
        each = min(_CLASS_WIDTH * typical * math.exp(min(abs(log_odds), 7.0)), widest)
    else:
        each = typical * within(_TARGET_LIMITS, effective_users / _TARGET_USERS)
    return each * math.sqrt(n_numbers)


def expected_length(ratio: float) -> float:
    """How far a classifier ought to have gone, as a share of its way, if it clipped at ``ratio`` typical norms."""
    return _LENGTH + (1 - _LENGTH) * min(ratio, 1.0)


@dataclass(frozen=True)
class Belief:
    """A mixture of normal laws of a few independent numbers.

    Attributes
    ----------
    means, variances : array of shape (laws, numbers)
    log_weights : array of shape (laws,)
        Up to a constant.
    """

    means: FloatArray
    variances: FloatArray
    log_weights: FloatArray

    @staticmethod
    def before(size: float | None, intercepts: FloatArray, ratio: float, is_classification: bool) -> "Belief":
        """Return what is expected of the coefficients' norm, now ``size`` (None: not asked), and of intercepts."""
        far_off = _FAR_OFF_LOG_ODDS if is_classification else _FAR_OFF_TARGET * (1 - share_kept(ratio))
        shifts = (_ABOUT_RIGHT, max(_ABOUT_RIGHT, far_off))
        lengths = [] if size is None else [size * expected_length(ratio)]
        spreads = [] if size is None else [size * _LENGTH_SPREAD]
        means = np.append(lengths, intercepts)
        variances = [np.append(spreads, np.full(len(intercepts), shift)) ** 2 for shift in shifts]
        return Belief(np.tile(means, (len(shifts), 1)), np.array(variances), np.zeros(len(shifts)))

    @property
    def point(self) -> FloatArray:
        """The expected numbers."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        mean: FloatArray = weights @ self.means / weights.sum()
        return mean

    def after(self, observed: FloatArray, noise_std: float) -> "Belief":
        """Return what is believed once these numbers were observed, up to noise."""
        total = self.variances + max(noise_std, 1e-100) ** 2
        off = observed - self.means
        score = -0.5 * (np.log(total) + off**2 / total).sum(axis=1)
        trust = self.variances / total
        return Belief(self.means + trust * off, self.variances * (1 - trust), self.log_weights + score)


def length_trust(size: float, noise_std: float) -> float:
    """How much an observed length is believed, for coefficients of norm ``size``."""
    variance = (size * _LENGTH_SPREAD) ** 2
    return variance / (variance + noise_std**2)
