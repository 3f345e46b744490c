"""AboveThreshold: the paper's (symmetric Laplace noise) and a one-sided form that costs half.

Both answer adaptive queries "above" until the first "below", then stop. Queries are integers: a caller
whose query lives on a finer public lattice passes lattice units.
"""

import math
from dataclasses import dataclass, field
from operator import index

from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource, laplace_scale


@dataclass
class AboveThreshold:
    """Algorithm 1 of Asi & Liu (2023), with the sensitivity of its queries written out.

    Draw threshold^ = threshold - Lap(2 S/epsilon) once. Query t answers "above" (True) iff
    q_t + Lap(4 S/epsilon) >= threshold^, and the first "below" (False) halts.

    The paper states S = 1 and gives it a score of sensitivity 2 (n-1)/n: see
    ``docs/proofs/above_threshold.md``.

    **Guarantee**: (epsilon, 0)-DP for any number of adaptive integer queries, each of sensitivity at most S.
    **Assumes**: at most one "below" leaves; later queries raise.
    """

    epsilon: float
    threshold: int
    noise: NoiseSource = field(repr=False)
    sensitivity: int = 1
    halted: bool = field(default=False, init=False)
    _noisy_threshold: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self.epsilon, self.sensitivity)
        self._noisy_threshold = self.threshold - int(
            self.noise.discrete_laplace(laplace_scale(2 * self.sensitivity, self.epsilon), 1)[0]
        )

    def is_above(self, query: int) -> bool:
        """Answer one query; raise after the halting one."""
        _refuse_if(self.halted)
        noisy = index(query) + int(
            self.noise.discrete_laplace(laplace_scale(4 * self.sensitivity, self.epsilon), 1)[0]
        )
        self.halted = noisy < self._noisy_threshold
        return not self.halted


@dataclass
class OneSidedAboveThreshold:
    """AboveThreshold with one-sided noise: query t passes iff q_t - G_t >= threshold - G_0.

    G_0 is geometric of scale 1/threshold_epsilon, drawn once; G_t geometric of scale 2/query_epsilon.

    **Guarantee**: (threshold_epsilon + query_epsilon, 0)-DP for adaptive integer queries of sensitivity 1,
    and tight. All queries that pass are at least threshold - k with probability
    1 - exp(-threshold_epsilon (k + 1)): their number does not enter.
    **Assumes**: at most one "below" leaves; later queries raise.
    """

    threshold_epsilon: float
    query_epsilon: float
    threshold: int
    noise: NoiseSource = field(repr=False)
    halted: bool = field(default=False, init=False)
    _noisy_threshold: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self.threshold_epsilon, 1)
        _check(self.query_epsilon, 1)
        self._noisy_threshold = self.threshold - int(
            self.noise.geometric(laplace_scale(1, self.threshold_epsilon), 1)[0]
        )

    def is_above(self, query: int) -> bool:
        """Answer one query; raise after the halting one."""
        _refuse_if(self.halted)
        noisy = index(query) - int(self.noise.geometric(laplace_scale(2, self.query_epsilon), 1)[0])
        self.halted = noisy < self._noisy_threshold
        return not self.halted


def paper_error(rounds: int, epsilon: float, failure: float, sensitivity: float = 1.0) -> float:
    """Return alpha = 8 S log(2 T/gamma)/epsilon, beyond which Algorithm 1 errs with probability gamma.

    Holds for integer noise when epsilon <= 4 S and gamma <= 1/2.
    """
    return 8 * sensitivity * math.log(2 * rounds / failure) / epsilon


def _check(epsilon: float, sensitivity: int) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InvalidInputError(f"epsilon must be a positive number, got {epsilon!r}")
    if index(sensitivity) < 1:
        raise InvalidInputError(f"sensitivity must be a positive integer, got {sensitivity!r}")


def _refuse_if(halted: bool) -> None:
    if halted:
        raise InvalidInputError("AboveThreshold has halted; a new one costs its epsilon again")
