r"""Many pure parts, one budget: what epsilon each of k (epsilon, 0)-DP parts may spend.

Every (epsilon, 0)-DP mechanism is mu-GDP for

    mu(epsilon) = 2 Phi^-1( e^epsilon / (1 + e^epsilon) )   (about 1.2533 epsilon),

and no smaller mu would do. So k adaptive parts cost sqrt(k) mu(epsilon), beside any Gaussian parts, and the
library's accounting applies. Few parts are better off with plain sums of epsilon; :func:`split_evenly` takes
whichever leaves each part more. Proofs: ``docs/proofs/pure_parts.md``.
"""

import math
from dataclasses import dataclass

from scipy.special import erf, erfinv, expit, log_ndtr, ndtri

from userdp.errors import InvalidInputError
from userdp.privacy.accounting import (
    Event,
    GaussianEvent,
    PureEvent,
    mu_beside,
    total_epsilon,
    total_failure,
    total_mu,
)
from userdp.privacy.budget import Budget

# Scale of the Gaussian that stands for a pure part in the accounting: its lattice correction vanishes.
_STAND_IN_SCALE = 2.0**30
# More than the special functions below err, relatively.
_ROUNDING = 1e-11


@dataclass(frozen=True)
class PureParts:
    """``count`` adaptive parts of ``epsilon`` each, and the events that account for them together."""

    count: int
    epsilon: float
    events: tuple[Event, ...]


def mu_of_pure(epsilon: float) -> float:
    """Smallest mu such that every (epsilon, 0)-DP mechanism is mu-GDP, rounded up.

    Examples
    --------
    >>> round(mu_of_pure(0.01) / 0.01, 4)       # sqrt(pi/2)
    1.2533
    """
    # erfinv keeps its digits for small epsilon, ndtri for large ones.
    half = math.sqrt(2) * erfinv(math.tanh(epsilon / 2)) if epsilon < 1 else -ndtri(expit(-epsilon))
    return 2 * float(half) * (1 + _ROUNDING)


def pure_of_mu(mu: float) -> float:
    """Largest epsilon with ``mu_of_pure(epsilon) <= mu``, rounded down."""
    small, large = mu < 1, float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))
    epsilon = 2 * math.atanh(float(erf(mu / math.sqrt(8)))) if small else large
    return epsilon * (1 - 4 * _ROUNDING)


def split_evenly(name: str, count: int, budget: Budget, beside: tuple[Event, ...] = ()) -> PureParts:
    """Give each of ``count`` adaptive pure parts the largest epsilon that fits the budget.

    **Guarantee**: ``events`` bound the cost of any adaptive composition of that many (epsilon, 0)-DP parts.
    """
    mu = mu_beside(beside, budget.epsilon, budget.delta)
    if mu == 0:
        raise InvalidInputError(f"the other parts of the release leave no budget for the {name}")
    composed = pure_of_mu(mu / math.sqrt(count))
    summed = (budget.epsilon - total_epsilon(beside)) / count * (1 - _ROUNDING)
    sums_apply = total_mu(beside) == 0 and total_failure(beside) <= budget.delta
    if sums_apply and summed >= composed:
        return PureParts(count, summed, (PureEvent(name, summed * count),))
    stand_in = GaussianEvent(name, mu_of_pure(composed) * _STAND_IN_SCALE, _STAND_IN_SCALE, rounds=count)
    return PureParts(count, composed, (stand_in,))
