r"""What each stage of ``userdp.mean`` spends: shares of mu^2, functions of N = n mu and the dimension alone.

A noisy histogram of n/2 pairs has a signal-to-noise ratio in proportion to N sqrt(share): it gets what makes shapes
stand out. The other shares minimize a prediction of the error. With a = 2 sqrt(d)/N, the noise over the radius of a
clipped mean that had all of the budget, in units of the ball that users fill,

* a concentrated mean at share s is off by c = k a/sqrt(s - gate);
* a clipped mean around it, at share s', by b = sqrt(1 + c^2) 1.3 a/sqrt(s');
* a clipped mean around a centre that is off by b has variance a^2 (1 + b^2)^(3/2)/share: a wider ball, and a bias;
* a concentrated mean alone has variance (k a)^2/share.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from userdp.errors import TooFewUsersError
from userdp.privacy.accounting import mu_beside
from userdp.privacy.budget import Budget

# N sqrt(share) at which a histogram's shape stands out from its noise, in one dimension; and in many, where distances
# are nearly the same, and share a bin.
_HISTOGRAM_SIGNAL, _SIGNAL_OF_MANY = 80.0, 55.0
# Below this N sqrt(share) of the pairs the radius could be noise: refused.
_LEAST_SIGNAL = 50.0
_LEAST_PAIRS, _MOST_PAIRS = 0.01, 0.4
# A radius that a noisy tail made too wide costs more than these.
_LEAST_CLIP, _MOST_CLIP = 0.03, 0.1
# N sqrt(share/d) at which units of d columns stand out; not asked for where that would cost more than this.
_UNITS_SIGNAL, _LEAST_UNITS, _MOST_UNITS = 60.0, 0.02, 0.1
# In few dimensions bias, not noise, is what a clip radius must avoid: the tail is worth this share over d.
_TAIL_SHARE = 0.4
# Nor may those few be overlooked who differ where most agree: the pairs are worth this share over d.
_MINORITY_SHARE = 0.2
# A concentrated mean's noise over that of a clipped one, k above; and what its gate needs of N sqrt(share).
_CONCENTRATED_NOISE, _GATE_SIGNAL = 4.0, 40.0
# A radius chosen before the distances to the centre are known is too wide by this factor.
_WIDE = 1.3
_GRID = tuple(0.5 ** np.arange(1, 8, 0.5))


@dataclass(frozen=True)
class Shares:
    """Shares of mu^2; the first centre gets the rest, and is the answer where there is no ``mean``."""

    mu: float
    pairs: float
    units: float = 0.0
    second_centre: float = 0.0
    clip: float = 0.0
    mean: float = 0.0

    def mu_of(self, share: float) -> float:
        """Return the mu of a share."""
        return self.mu * math.sqrt(share)


def shares(n_users: int, dimension: int, budget: Budget) -> Shares:
    """Split the budget; read no data.

    Raises
    ------
    TooFewUsersError
        If no affordable share would tell distances between users from noise, with the number of users that would.
    """
    mu = mu_beside((), budget.epsilon, 0.99 * budget.delta)
    N, least = n_users * mu, _LEAST_SIGNAL / math.sqrt(_MOST_PAIRS)
    if N < least:
        raise TooFewUsersError(
            f"{n_users} users are too few to find out how far apart they are at epsilon = {budget.epsilon:g}, "
            f"delta = {budget.delta:g}; it takes at least {math.ceil(least / mu)}, a larger epsilon, or a radius"
        )
    a = 2 * math.sqrt(dimension) / N
    signal = _SIGNAL_OF_MANY + (_HISTOGRAM_SIGNAL - _SIGNAL_OF_MANY) / math.sqrt(dimension)
    pairs = _between(_LEAST_PAIRS, (signal / N) ** 2, _MOST_PAIRS)
    pairs = max(pairs, min(_MINORITY_SHARE / dimension, _MOST_CLIP))
    clip = _between(max(_LEAST_CLIP, _TAIL_SHARE / dimension), (_HISTOGRAM_SIGNAL / N) ** 2, _MOST_CLIP)
    units = _units_share(N, dimension)
    searches = pairs + units
    best, lowest = Shares(mu, pairs, units), (_CONCENTRATED_NOISE * a) ** 2 / (1 - searches)
    for first, second in itertools.product(_GRID, (0.0, *_GRID)):
        beyond_gate, left = first - (_GATE_SIGNAL / N) ** 2, 1 - searches - clip - first - second
        if beyond_gate <= 0 or left <= 0:
            continue
        off = (_CONCENTRATED_NOISE * a) ** 2 / beyond_gate
        if second:
            off = (1 + off) * (_WIDE * a) ** 2 / second
        variance = a**2 * (1 + off) ** 1.5 / left
        if variance < lowest:
            best, lowest = Shares(mu, pairs, units, second, clip, left), variance
    return best


def _units_share(N: float, dimension: int) -> float:
    """Return what the columns' units are worth: nothing for a single one, or where they would cost too much."""
    share = dimension * (_UNITS_SIGNAL / N) ** 2
    return max(share, _LEAST_UNITS) if dimension > 1 and share <= _MOST_UNITS else 0.0


def _between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)
