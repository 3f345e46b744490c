"""Bound epsilon from below: what an attacker who sees outputs could prove, with stated confidence.

The attacker runs a mechanism many times on each of two neighbouring inputs. Half of the outputs teach a test by
likelihood ratios: outputs are cut into bins (a refusal is a bin of its own), bins are ordered by how much likelier one
input makes them, and the best cut is kept. The other half bounds its two error rates by Clopper-Pearson, so choosing
costs no confidence. A correct mechanism gives a bound below its epsilon; a bound near zero means that the attack is
blind, not that nothing leaks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import betaincinv, expit

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.errors import NotConcentratedError
from userdp.mechanisms.noise import NoiseSource

Once: TypeAlias = Callable[[FloatArray, NoiseSource], FloatArray]

CONFIDENCE = 0.999
# Bins end at these quantiles of all outputs, closer together in the tails, where differences are largest.
_EDGES = expit(np.linspace(-7.5, 7.5, 121))


def outputs(
    once: Once,
    value: FloatArray,
    trials: int,
    noise: NoiseSource,
    after_trial: Callable[[], None] = lambda: None,
) -> FloatArray:
    """Run a mechanism many times on one input; return a row per run, NaN where it refused."""
    released: list[FloatArray | None] = []
    for _ in range(trials):
        try:
            released.append(once(value, noise))
        except NotConcentratedError:
            released.append(None)
        after_trial()
    width = next((len(output) for output in released if output is not None), 1)
    refused = np.full(width, np.nan)
    return np.array([refused if output is None else output for output in released])


def lower_bound(one: FloatArray, other: FloatArray, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the epsilon that two samples of outputs prove at ``delta``, by a test taught on half of them.

    Parameters
    ----------
    one, other : array of shape (trials,) or (trials, k)
        Outputs on two neighbouring inputs; a row of NaN is a refusal.
    delta : float
        The claim's delta.
    confidence : float
        Probability with which the returned number is below the true epsilon.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> same, shifted = rng.normal(size=4_000), rng.normal(3.0, size=4_000)
    >>> lower_bound(same, same, 1e-3), lower_bound(same, shifted, 1e-3) > 1
    (0.0, True)
    """
    one, other = (np.reshape(sample, (len(sample), -1)) for sample in (one, other))
    width = max(one.shape[1], other.shape[1])  # a side that always refused does not know it
    one, other = (np.broadcast_to(sample, (len(sample), width)) for sample in (one, other))
    half = len(one) // 2
    level = (1 - confidence) / 2
    test = _best_test(one[:half], other[:half], delta, level)
    hits, false_alarms = test.says_other(other[half:]), test.says_other(one[half:])
    if test.swapped:
        hits, false_alarms = false_alarms, hits
    return max(
        0.0, float(_epsilon(hits.sum(), len(hits), false_alarms.sum(), len(false_alarms), delta, level))
    )


def clopper_pearson(hits: int, trials: int, level: float) -> tuple[float, float]:
    """Return bounds on a probability, each wrong with probability at most ``level``.

    Examples
    --------
    >>> low, high = clopper_pearson(5, 10, 0.025)
    >>> round(low, 3), round(high, 3)
    (0.187, 0.813)
    """
    low = float(betaincinv(hits, trials - hits + 1, level)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - level)) if hits < trials else 1.0
    return low, high


def _epsilon(
    hits: int, trials: int, false_alarms: int, quiet_trials: int, delta: float, level: float
) -> float:
    low, _ = clopper_pearson(int(hits), trials, level)
    _, high = clopper_pearson(int(false_alarms), quiet_trials, level)
    return math.log((low - delta) / high) if low > delta else 0.0


@dataclass(frozen=True)
class _Test:
    """Outputs are projected, cut into bins, and some bins are taken for a sign of the other input."""

    centre: FloatArray
    direction: FloatArray
    edges: FloatArray
    chosen: BoolArray
    swapped: bool

    def says_other(self, outputs: FloatArray) -> BoolArray:
        verdicts: BoolArray = self.chosen[_bins(outputs, self.centre, self.direction, self.edges)]
        return verdicts


def _bins(outputs: FloatArray, centre: FloatArray, direction: FloatArray, edges: FloatArray) -> IntArray:
    """Return each output's bin; bin 0 holds the refusals."""
    scores = (outputs - centre) @ direction
    return np.where(np.isnan(scores), 0, 1 + np.searchsorted(edges, scores, side="left"))


def _best_test(one: FloatArray, other: FloatArray, delta: float, level: float) -> _Test:
    """Learn a direction, bins and the best cut, for either input in either role."""
    centre, direction = _direction(one, other)
    scores = (np.concatenate([one, other]) - centre) @ direction
    answered = scores[~np.isnan(scores)]
    # No interpolation: an output may have few values, and each of them is then a bin.
    edges = np.unique(np.quantile(answered, _EDGES, method="higher")) if answered.size else np.empty(0)
    counts = [
        np.bincount(_bins(side, centre, direction, edges), minlength=len(edges) + 2) for side in (one, other)
    ]
    best: tuple[float, BoolArray, bool] = (-1.0, np.zeros(len(edges) + 2, bool), False)
    for swapped, (quiet, loud) in enumerate((counts, counts[::-1])):
        order = np.argsort(-(loud + 0.5) / (quiet + 0.5), kind="stable")
        hits, false_alarms = np.cumsum(loud[order]), np.cumsum(quiet[order])
        for k in range(len(order)):
            found = _epsilon(hits[k], len(other), false_alarms[k], len(one), delta, level)
            if found > best[0]:
                chosen = np.zeros(len(order), bool)
                chosen[order[: k + 1]] = True
                best = found, chosen, bool(swapped)
    return _Test(centre, direction, edges, best[1], best[2])


def _direction(one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the middle and Fisher's direction between two samples, refusals left out."""
    k = one.shape[1]
    kept = [side[~np.isnan(side).any(axis=1)] for side in (one, other)]
    if min(len(side) for side in kept) <= k:
        return np.zeros(k), np.eye(1, k)[0]
    centre = (kept[0].mean(axis=0) + kept[1].mean(axis=0)) / 2
    within = sum(np.atleast_2d(np.cov(side, rowvar=False)) for side in kept)
    ridge = 1e-9 * max(float(np.trace(within)), 1e-300) * np.eye(k)
    direction: FloatArray = np.linalg.solve(within + ridge, kept[1].mean(axis=0) - kept[0].mean(axis=0))
    return centre, direction if k > 1 else np.ones(1)
