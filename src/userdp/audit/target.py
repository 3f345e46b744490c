"""A mechanism as an attacker meets it: what it claims, on which inputs it is attacked, one run of it."""

from collections.abc import Callable
from dataclasses import dataclass

from userdp.arrays import FloatArray
from userdp.audit.attack import Once
from userdp.audit.pairs import Pair
from userdp.privacy.budget import Budget


@dataclass(frozen=True)
class Target:
    """A mechanism under attack.

    Attributes
    ----------
    epsilon, delta : float
        What it claims.
    pairs : tuple of Pair
        Neighbouring inputs to try.
    once : callable
        ``(input, noise) -> output``, one run; a run that refuses raises NotConcentratedError.
    exact : callable, optional
        The exact epsilon on a pair, where it can be computed.
    cost : int
        How many times fewer runs the attack makes than of a clipped mean, since each takes so much longer.
    evidence : callable, optional
        ``(pair, outputs) -> statistic``, where a better one is known than can be learnt from the outputs.
    certified : bool
        Whether the claim is one that the library stands for; the paper's own are not.
    """

    epsilon: float
    delta: float
    pairs: tuple[Pair, ...]
    once: Once
    exact: Callable[[Pair], float] | None = None
    cost: int = 1
    evidence: Callable[[Pair, FloatArray], FloatArray] | None = None
    certified: bool = True


def at_least(budget: Budget, epsilon: float) -> Budget:
    """Return a claim so large that the few runs of a slow mechanism can prove something."""
    return Budget(max(budget.epsilon, epsilon), budget.delta, budget.unit)
