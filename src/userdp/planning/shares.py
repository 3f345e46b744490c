r"""How an estimator's budget is split over its stages.

Every stage is Gaussian and costs a share of mu^2, mu being the GDP parameter of what the clip radius, the only pure
stage, leaves of the budget. The shares add up to at most four fifths: the descent keeps a fifth or more. Nearly
everything is a function of the effective number of users N = n mu and of the number d of features: a stage that
estimates d numbers needs about sqrt(d)/N, so it gets more of the budget where N is small, and is left out where it
would only add noise. The constants come from trials on four real tables (flights, retail, jester, chem97); they are
public and none depends on data.
"""

import math
from dataclasses import dataclass

from userdp.privacy.accounting import PureEvent, mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.gdp import mu_from_budget


@dataclass(frozen=True)
class Shares:
    """GDP parameters of the stages (0: left out), and the pure epsilon of the clip radius.

    Attributes
    ----------
    mu, effective_users : float
        Of the whole budget: mu, and N = n mu.
    base_rate, scale, centre, second_moment : float
        mu of each stage.
    radius_epsilon : float
        Pure epsilon of the clip radius.
    """

    mu: float
    effective_users: float
    base_rate: float
    scale: float
    centre: float
    second_moment: float
    radius_epsilon: float


def shares(
    n_users: int, n_features: int, budget: Budget, *, has_base_rate: bool, has_centre: bool = True
) -> Shares:
    """Split a budget over the stages; reads no data.

    Without an intercept nothing can be centred (``has_centre=False``).

    Examples
    --------
    >>> split = shares(2_000, 20, Budget(1.0, 1e-6), has_base_rate=True)
    >>> round(split.effective_users), round((split.scale / split.mu) ** 2, 2)
    (473, 0.1)
    """
    mu = mu_from_budget(budget.epsilon, budget.delta)
    N, d = n_users * mu, n_features
    # The rank of a radius among 20 candidates is then right within a tenth of the users.
    radius_epsilon = _between(0.01 * budget.epsilon, 60 / n_users, 0.15 * budget.epsilon)
    left = mu_beside((PureEvent("clip radius", radius_epsilon),), budget.epsilon, budget.delta)
    centre = _between(0.015, (8 * math.sqrt(d) / N) ** 2, 0.06)
    second = _between(0.01, (16 * math.sqrt(d) / N) ** 2, 0.04)

    def is_worth_it(share: float, largest_error: float) -> bool:
        return 0.8 * math.sqrt(d) / (N * math.sqrt(share)) <= largest_error

    return Shares(
        mu=mu,
        effective_users=N,
        base_rate=left * math.sqrt(_between(0.01, (20 / N) ** 2, 0.5)) if has_base_rate else 0.0,
        scale=left * math.sqrt(_between(0.1, (8 * math.sqrt(2 * d) / N) ** 2, 0.2)),
        centre=left * math.sqrt(centre) if has_centre and is_worth_it(centre, 0.5) else 0.0,
        second_moment=left * math.sqrt(second) if is_worth_it(second, 0.3) else 0.0,
        radius_epsilon=radius_epsilon,
    )


def _between(low: float, value: float, high: float) -> float:
    return min(max(value, low), high)
