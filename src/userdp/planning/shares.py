r"""How an estimator's budget is split over its stages.

Every stage is Gaussian and costs a share of mu^2, mu being the GDP parameter of the whole budget. Nearly all is a
function of the effective number of users N = n mu and of how many numbers a stage has to find: d numbers are found
within about sqrt(d)/N of their unit, so a stage gets more of the budget where N is small, between public limits, and is
left out where it would only add noise. The limits add up to less than nine tenths: the descent keeps a tenth or more.

The constants come from trials on four real tables (flights, retail, jester, chem97) and their subsets; they are public
and none depends on data.
"""

import math
from dataclasses import dataclass

from userdp.privacy.accounting import mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.gdp import mu_from_budget


@dataclass(frozen=True)
class Shares:
    """GDP parameters of the stages; 0 for one that is left out.

    Attributes
    ----------
    mu, effective_users : float
        Of the whole budget: mu, and N = n mu.
    base_rate : float
        How often each class occurs; classification only.
    target_scale, target_location, target_mean : float
        Unit and middle of the targets; regression only.
    scale : float
        Units of the features that are not boolean.
    centre, second_moment : float
        Of all features.
    radius : float
        The typical norm of a user's gradient.
    """

    mu: float
    effective_users: float
    base_rate: float
    target_scale: float
    target_location: float
    target_mean: float
    scale: float
    centre: float
    second_moment: float
    radius: float


def shares(
    n_users: int,
    n_features: int,
    budget: Budget,
    *,
    is_regression: bool,
    n_booleans: int = 0,
    has_centre: bool = True,
) -> Shares:
    """Split a budget over the stages; reads no data.

    Without an intercept nothing can be centred (``has_centre=False``).

    Examples
    --------
    >>> split = shares(2_000, 20, Budget(1.0, 1e-6), is_regression=False)
    >>> round(split.effective_users), round((split.scale / split.mu) ** 2, 2)
    (473, 0.1)
    """
    mu = mu_beside((), budget.epsilon, budget.delta)
    N = n_users * mu_from_budget(budget.epsilon, budget.delta)
    root_d, numbers = math.sqrt(n_features), n_features - n_booleans

    def stage(low: float, users_needed: float, high: float, *, wanted: bool = True) -> float:
        """Mu of a stage that would be content with so many effective users of its own."""
        return mu * math.sqrt(min(max((users_needed / N) ** 2, low), high)) if wanted else 0.0

    def worth_it(part: float, largest_error: float) -> float:
        return part if part and 0.8 * root_d / (n_users * part) <= largest_error else 0.0

    return Shares(
        mu=mu,
        effective_users=N,
        base_rate=stage(0.01, 20, 0.5, wanted=not is_regression),
        target_scale=stage(0.02, 12, 0.25, wanted=is_regression),
        target_location=stage(0.01, 8, 0.15, wanted=is_regression and has_centre),
        target_mean=stage(0.02, 10, 0.15, wanted=is_regression and has_centre),
        scale=stage(0.1, 8 * math.sqrt(2 * numbers), 0.2, wanted=numbers > 0),
        centre=worth_it(stage(0.015, 8 * root_d, 0.06, wanted=has_centre), 0.5),
        second_moment=worth_it(stage(0.01, 16 * root_d, 0.04), 0.3),
        radius=stage(0.002, 20, 0.04),
    )
