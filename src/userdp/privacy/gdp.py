r"""The privacy curve of a Gaussian mechanism (mu-GDP), both ways.

A mechanism is mu-GDP when telling D from D' is at least as hard as telling N(0, 1) from N(mu, 1)
(Dong, Roth & Su 2022). It is then (epsilon, delta)-DP for exactly the pairs on the curve

    delta_Phi(epsilon; mu) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

The inverse functions round towards privacy: a returned ``mu`` never costs more, a returned ``epsilon``
never claims less, than what was asked.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

# Relative error allowed for in one evaluation of a privacy curve; the evaluations below err by less.
CURVE_TOLERANCE = 1e-9
_SMALL_MU = 0.1
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def delta_from_mu(epsilon: float, mu: float) -> float:
    """Smallest delta for which mu-GDP implies (epsilon, delta)-DP; epsilon may be negative.

    Examples
    --------
    >>> round(delta_from_mu(epsilon=1.0, mu=0.2367), 8)
    1e-06
    """
    if epsilon < 0:  # the curve's symmetry; both terms are positive
        return -math.expm1(epsilon) + math.exp(epsilon) * delta_from_mu(-epsilon, mu)
    if mu == 0:
        return 0.0
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    if a > 0 and mu > _SMALL_MU:
        return float(ndtr(a) - math.exp(epsilon + log_ndtr(b)))
    # exp(epsilon) phi(b) = phi(a), so the difference of the two terms is one of Mills ratios.
    x, y = -a / math.sqrt(2), -b / math.sqrt(2)
    difference = float(erfcx(x) - erfcx(y)) if mu > _SMALL_MU else _mills_difference(x, y)
    return math.exp(-a * a / 2) / 2 * difference


def _mills_difference(x: float, y: float) -> float:
    """Return erfcx(x) - erfcx(y) for close x < y, by integrating -erfcx' = 2/sqrt(pi) - 2 t erfcx(t)."""
    t = x + (y - x) * (_NODES + 1) / 2
    return (y - x) / 2 * float(_WEIGHTS @ (2 / math.sqrt(math.pi) - 2 * t * erfcx(t)))


def mu_from_budget(epsilon: float, delta: float) -> float:
    """Largest mu whose curve passes below (epsilon, delta), rounded down.

    Examples
    --------
    >>> round(2 / mu_from_budget(epsilon=1.0, delta=1e-6), 2)   # the "clip multiplier" n sigma / r
    8.45
    """
    return largest_below(lambda mu: delta_from_mu(epsilon, mu), delta)


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Smallest epsilon with delta_Phi(epsilon; mu) <= delta, rounded up."""
    return smallest_epsilon(lambda epsilon: delta_from_mu(epsilon, mu), delta)


def largest_below(increasing: Callable[[float], float], bound: float) -> float:
    """Largest x >= 0 with increasing(x) <= bound < sup of increasing, rounded down."""
    low, high = 0.0, 1.0
    while increasing(high) * (1 + CURVE_TOLERANCE) <= bound:
        low, high = high, 2 * high
    return _bisect(lambda x: increasing(x) * (1 + CURVE_TOLERANCE) <= bound, low, high)[0]


def smallest_epsilon(decreasing: Callable[[float], float], bound: float) -> float:
    """Smallest epsilon >= 0 with decreasing(epsilon) <= bound, rounded up; infinity where there is none."""
    low, high = 0.0, 1.0
    if decreasing(low) * (1 + CURVE_TOLERANCE) <= bound:
        return 0.0
    while decreasing(high) * (1 + CURVE_TOLERANCE) > bound:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    return _bisect(lambda x: decreasing(x) * (1 + CURVE_TOLERANCE) > bound, low, high)[1]


def _bisect(holds_below: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Shrink [low, high] around the point where ``holds_below`` turns from true to false."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high) or high - low <= 1e-13 * high:
            break
        low, high = (middle, high) if holds_below(middle) else (low, middle)
    return low, high
