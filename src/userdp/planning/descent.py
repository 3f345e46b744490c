r"""How an estimator descends, from public numbers and what its stages released.

Coefficients come in groups: those of numbers (and the intercept), and those of booleans. Of a group two things are
known: how important each of its coefficients is (as many as their importances add up to there are, effectively), and
how strong a typical coefficient may be expected (a prior variance tau^2, better known once a pilot gradient was
released; tau_i^2 in proportion to the importance). From them and the noise s of a mean gradient follow

* a **ridge** for each coefficient, s^2/(h tau_i^2): that which shrinks it, for the curvature h, as well as possible;
* **time**: the less noise in the coefficients over what they are expected to be, the longer. Stopping early is a ridge
  of its own. A pilot that is stronger than expected adds no time: it comes from correlated features, more often than
  from strong coefficients, and in their weak directions noise grows as long as the descent goes on.

At the end the coefficients themselves, in which there is far less noise than in the pilot, tell how strong those of
each group are. They are then made longer, by what ridge and time took from strong ones, or shorter (``lengthening``).

Where one class is rare, its users' gradients are large and clipping takes most from them: the fit is then that of a
table with fewer of them, whose slopes are right and whose intercept is too low. The clip is wider for it, and
:mod:`userdp.planning.calibration` tells the rest.

The constants come from trials on four real tables (flights, retail, jester, chem97) and on those of
``benchmarks/holdout``; what others would do is in ``benchmarks/results/sensitivity.md``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np

from userdp.arrays import FloatArray

# Squared norm of the coefficients of scaled features to expect: in log odds, and in units of the target.
LOG_ODDS_SIGNAL, TARGET_SIGNAL = 1.2, 0.4
# How far from their mean the middle of the targets is: variance, in squared units.
TARGET_MIDDLE = 0.1
# The prior is off by a factor of four, one standard deviation.
_SIGNAL_SPREAD = math.log(4)
# The answer is the average of this last share of the iterates.
AVERAGED_SHARE = 0.85
# Users' gradient norms scatter by so many halves of a power of two (a log-normal law).
NORM_SPREAD = 1.5
# A pilot gets between these shares of what is left: enough to see a signal that is this multiple of the expected one.
_PILOT_SHARES, _PILOT_SEES = (0.02, 0.15), 0.6
# As a first step it may reach this far, as a share of the way that one coefficient by itself has to go.
_PILOT_REACH = 0.5
# A coefficient that has gone less than this share of its way is not led on as far as that would take.
_LEAST_GONE = 0.25


@dataclass(frozen=True)
class Group:
    """Coefficients of one kind.

    Attributes
    ----------
    importance : array of shape (k,)
        How much may be expected of each, over what may be expected of a typical one.
    variance : float
        Prior variance of a typical one.
    least : float or array of shape (k,)
        Prior variance that each has in any case.
    """

    importance: FloatArray
    variance: float
    least: float | FloatArray = 0.0

    @property
    def size(self) -> float:
        """Effective number of coefficients."""
        return float(self.importance.sum())

    @property
    def variances(self) -> FloatArray:
        """Prior variance of each coefficient."""
        return np.maximum(self.variance * self.importance, self.least)


@dataclass(frozen=True)
class Descent:
    """Rounds, and steps and ridges of each group, of a descent on clipped gradients.

    Attributes
    ----------
    rounds : int
        Of the gradient descent.
    steps, ridges : tuple of arrays
        Of each group's coefficients; ridges towards the start, on the unclipped loss.
    head_start : float
        How many of the rounds the pilot gradient is as good as.
    gone : tuple of arrays
        Share of the way to where it is best that a coefficient by itself has gone at the end, for ridge and time.
    noise_std : tuple of arrays
        Of each coefficient of a group at the end, to first order.
    """

    rounds: int
    head_start: float
    steps: tuple[FloatArray, ...]
    ridges: tuple[FloatArray, ...]
    gone: tuple[FloatArray, ...]
    noise_std: tuple[FloatArray, ...]


def expected_groups(importances: Sequence[FloatArray], signals: FloatArray) -> tuple[Group, ...]:
    """Share a group's squared norm out among its coefficients."""
    pairs = zip(importances, signals, strict=True)
    return tuple(Group(one, float(signal) / float(one.sum())) for one, signal in pairs)


def clip_ratio(effective_users: float, n_coefficients: float, log_odds: float = 0.0) -> float:
    """Clip radius over the typical norm.

    Few users a coefficient: every gradient is clipped, which costs the least noise; many: hardly any, the least bias.
    Users of the rarer of two classes have gradients exp(|log odds|) times as large as the others': the clip goes half
    of that way.
    """
    return min(max(effective_users / (30 * n_coefficients), 0.1), 3.0) * math.exp(min(abs(log_odds), 7.0) / 2)


@cache
def share_kept(ratio: float) -> float:
    """About how much of the mean gradient survives clipping at ``ratio`` times the typical norm."""
    normal, points = NormalDist(), 200
    halves = (NORM_SPREAD * normal.inv_cdf((i + 0.5) / points) for i in range(points))
    return sum(min(1.0, ratio * math.exp2(-half / 2)) for half in halves) / points


def pilot_share(groups: Sequence[Group], noise: float, curvature: float) -> float:
    """Share of what is left that a pilot gradient gets, for ``noise`` if it got everything."""
    k, signal = sum(g.size for g in groups), sum(g.size * g.variance for g in groups)
    needed = math.sqrt(2 * k) * (noise / curvature) ** 2 / (_PILOT_SEES * signal)
    return min(max(needed, _PILOT_SHARES[0]), _PILOT_SHARES[1])


def seen(group: Group, coefficients: FloatArray, noise_std: float) -> Group:
    """Learn how strong a group's coefficients are from what a pilot gradient says of them, up to its noise.

    The variance is the posterior geometric mean, for coefficients and noise that are normal.
    """
    variances, weights = _strengths(group, coefficients, noise_std)
    ratios = np.log(variances / group.variance)
    return replace(group, variance=group.variance * math.exp(float(weights @ ratios)))


def lengthening(
    group: Group, gone: FloatArray, coefficients: FloatArray, noise_std: FloatArray
) -> FloatArray:
    """By how much to multiply coefficients that have ``gone`` such a share of their way: posterior means.

    The law of coefficients and noise is the one of :func:`seen`; how strong the group is, the coefficients tell
    themselves.
    """
    gone = np.maximum(gone, _LEAST_GONE)
    there, noise = coefficients / gone, noise_std / gone
    variances, weights = _strengths(group, there, noise)
    each = variances[:, None] * group.importance
    trust: FloatArray = weights @ (each / (each + noise**2))
    return trust / gone


def _strengths(
    group: Group, coefficients: FloatArray, noise_std: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return variances that a typical coefficient of the group may have, and their posterior probabilities."""
    logs = np.linspace(-8.0, 8.0, 33) * math.log(2)
    typical = group.variance * np.exp(logs)
    total = typical[:, None] * group.importance + np.square(noise_std)
    score = -0.5 * ((np.log(total) + coefficients**2 / total).sum(axis=1) + (logs / _SIGNAL_SPREAD) ** 2)
    weights = np.exp(score - score.max())
    return typical, weights / weights.sum()


def descent(
    groups: Sequence[Group],
    noise: float,
    *,
    signal: float,
    curvature: float,
    kept: float,
    ridge: float = 0.0,
    rounds: int | None = None,
    pilot: float = 0.0,
) -> Descent:
    """Choose ridges, time and steps for the noise there is.

    Parameters
    ----------
    noise : float
        Of the mean gradient, by coordinate, if all were spent on one round; over ``kept``.
    signal : float
        Squared norm of the coefficients that was expected before the pilot; time is for no more.
    curvature : float
        Of the loss along the predictor.
    kept : float
        What clipping leaves of the mean gradient.
    ridge, rounds : float, int or None
        The caller's own: an additional ridge, and rounds in place of those that follow from the noise.
    pilot : float
        Squared mu of a pilot gradient, over that of the descent.
    """
    k, h = sum(group.size for group in groups), curvature
    strength = math.sqrt(min(sum(group.size * group.variance for group in groups), signal))
    ridges = [ridge + noise**2 / (h * group.variances) for group in groups]
    kappa = max(6.0, 2.4 * math.sqrt(k))
    time = 7.5 * (0.3 * strength * h / (noise * math.sqrt(k))) ** 0.75
    n_rounds = rounds or math.ceil(kappa * min(max(time, 3.0), 60.0))
    head_start = min(pilot * n_rounds, _PILOT_REACH * kappa)
    averaged = np.arange(n_rounds - round(AVERAGED_SHARE * n_rounds), n_rounds) + 1
    left = (1 - head_start / kappa) * float(np.mean((1 - 1 / kappa) ** averaged))
    return Descent(
        n_rounds,
        head_start,
        tuple(1 / (kappa * kept * (h + one)) for one in ridges),
        tuple(ridges),
        tuple((h + ridge) / (h + one) * (1 - left) for one in ridges),
        tuple(noise / (h + one) / math.sqrt(AVERAGED_SHARE) for one in ridges),
    )
