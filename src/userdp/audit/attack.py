"""Attack released means on worst-case neighbours: a lower bound on epsilon that holds with confidence.

The attacker sees releases (a refusal counts as minus infinity) and picks the best threshold on half of the
trials; the other half bounds the two error rates by Clopper-Pearson. A correct mechanism gives a bound below
its epsilon; a bound near zero means that the attack is blind, not that nothing leaks.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv

from userdp.arrays import FloatArray
from userdp.errors import NotConcentratedError
from userdp.means.interface import CalibratedMean
from userdp.mechanisms.noise import NoiseSource

CONFIDENCE = 0.999


def neighbours(n_users: int) -> tuple[FloatArray, FloatArray]:
    """Return two tables with all users at one point but one, who is at opposite ends of the unit ball.

    They attain the sensitivity 2r/n of a mean.
    """
    one, other = np.zeros((n_users, 1)), np.zeros((n_users, 1))
    one[0], other[0] = -1.0, 1.0
    return one, other


def outputs(
    mechanism: CalibratedMean,
    vectors: FloatArray,
    trials: int,
    noise: NoiseSource,
    after_trial: Callable[[], None] = lambda: None,
) -> FloatArray:
    """Run the mechanism many times on one table; return the first coordinate, or minus infinity."""
    released = np.full(trials, -np.inf)
    for trial in range(trials):
        session = mechanism.start(noise)
        try:
            answer = session.answer(vectors)
            session.finish()
            released[trial] = answer[0]
        except NotConcentratedError:
            pass
        after_trial()
    return released


def lower_bound(one: FloatArray, other: FloatArray, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the epsilon that two samples of outputs prove, by one threshold chosen on half of them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> same, shifted = rng.normal(size=4_000), rng.normal(3.0, size=4_000)
    >>> lower_bound(same, same, 1e-3), lower_bound(same, shifted, 1e-3) > 1
    (0.0, True)
    """
    half = len(one) // 2
    seen = np.concatenate([one[:half], other[:half]])
    # No interpolation: between minus infinity and a number there is nothing.
    thresholds = np.quantile(seen, np.linspace(0.001, 0.999, 500), method="higher")

    def epsilon(threshold: float, a: FloatArray, b: FloatArray) -> float:
        level = (1 - confidence) / 2
        hits = np.count_nonzero(b > threshold)
        false_alarms = np.count_nonzero(a > threshold)
        true_low = float(betaincinv(hits, len(b) - hits + 1, level)) if hits else 0.0
        false_high = float(betaincinv(false_alarms + 1, len(a) - false_alarms, 1 - level))
        return math.log((true_low - delta) / false_high) if true_low > delta else 0.0

    chosen = max(thresholds, key=lambda t: epsilon(t, one[:half], other[:half]))
    return max(0.0, epsilon(chosen, one[half:], other[half:]))
