"""Attack released means on worst-case neighbours: a lower bound on epsilon at 99.9% confidence.

The attacker sees releases (a refusal counts as minus infinity) and picks the best threshold on half of the
trials; the other half bounds the two error rates by Clopper-Pearson. A correct mechanism gives a bound below
its epsilon; a bound near zero would mean that the attack is blind.
"""

import math

import numpy as np
from scipy.stats import beta

from benchmarks.measure import write_result
from userdp.arrays import FloatArray
from userdp.errors import NotConcentratedError
from userdp.means import ClippedMean, ConcentratedMean
from userdp.means.interface import CalibratedMean, MeanEstimator
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget

TRIALS = 20_000
CONFIDENCE = 0.999
BUDGET = Budget(1.0, 1e-3)


def neighbours(n: int) -> tuple[FloatArray, FloatArray]:
    """All users at one point, one of them at opposite ends of the ball: attains the sensitivity 2r/n."""
    one, other = np.zeros((n, 1)), np.zeros((n, 1))
    one[0], other[0] = -1.0, 1.0
    return one, other


def lower_bound(one: FloatArray, other: FloatArray, delta: float) -> float:
    """Epsilon that the two samples of outputs prove, by one threshold chosen on half of them."""
    half = len(one) // 2
    thresholds = np.quantile(np.concatenate([one[:half], other[:half]]), np.linspace(0.001, 0.999, 500))

    def epsilon(threshold: float, a: FloatArray, b: FloatArray, level: float) -> float:
        hits = np.count_nonzero(b > threshold)
        false_alarms = np.count_nonzero(a > threshold)
        true_low = beta.ppf(level, hits, len(b) - hits + 1) if hits else 0.0
        false_high = beta.ppf(1 - level, false_alarms + 1, len(a) - false_alarms)
        return math.log((true_low - delta) / false_high) if true_low > delta else 0.0

    level = (1 - CONFIDENCE) / 2
    chosen = max(thresholds, key=lambda t: epsilon(t, one[:half], other[:half], level))
    return max(0.0, epsilon(chosen, one[half:], other[half:], level))


def outputs(mechanism: CalibratedMean, x: FloatArray, seed: int) -> FloatArray:
    """Run the mechanism many times on one data set."""
    noise = SeededNoise(seed)
    released = np.full(TRIALS, -np.inf)
    for trial in range(TRIALS):
        session = mechanism.start(noise)
        try:
            answer = session.answer(x)
            session.finish()
        except NotConcentratedError:
            continue
        released[trial] = answer[0]
    return released


def main() -> None:
    n = 300
    one, other = neighbours(n)
    rows, bounds = [], {}
    mechanisms: dict[str, MeanEstimator] = {
        "clipped mean": ClippedMean(1.0),
        "certified mean, Gaussian gate": ConcentratedMean(1.0, gate="gaussian"),
        "certified mean, deferred gate": ConcentratedMean(1.0, gate="deferred"),
        "certified mean, one-sided gate": ConcentratedMean(1.0, gate="one-sided"),
    }
    for name, mechanism in mechanisms.items():
        calibrated = mechanism.calibrate(n, 1, BUDGET)
        bounds[name] = lower_bound(outputs(calibrated, one, 0), outputs(calibrated, other, 1), BUDGET.delta)
        rows.append(f"| {name} | {BUDGET.epsilon:g} | {bounds[name]:.3f} |")
    table = (
        "# Audit: empirical lower bounds on epsilon\n\n| mechanism | claimed epsilon | proven by attack |\n"
    )
    table += "|---|---|---|\n" + "\n".join(rows)
    table += f"\n\ndelta = {BUDGET.delta:g}, {TRIALS:,} trials a side, {CONFIDENCE:.1%} confidence, n = {n}."
    result = {
        "epsilon": BUDGET.epsilon,
        "delta": BUDGET.delta,
        "trials": TRIALS,
        "n_users": n,
        "bounds": bounds,
    }
    write_result("audit", "make audit", result, table)
    if any(bound > BUDGET.epsilon for bound in bounds.values()):
        raise SystemExit("an attack went over a claim")


if __name__ == "__main__":
    main()
