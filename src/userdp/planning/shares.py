r"""How an estimator's budget is split over its stages.

Every stage is Gaussian and costs a share of mu^2, mu being the GDP parameter of the whole budget. Nearly all is a
function of the effective number of users N = n mu and of how many numbers a stage has to find: d numbers are found
within about sqrt(d)/N of their unit, so a stage gets more of the budget where N is small, between public limits, and is
left out where it would only add noise. The start (base rate, or unit and middle of the targets) is paid first, for
without it a model is worse than none; the other stages share what it leaves, and the descent keeps a quarter of that or
more.

The constants come from trials on four real tables (flights, retail, jester, chem97) and on those of
``benchmarks/holdout``; they are public and none depends on data.
"""

import math
from dataclasses import dataclass

from userdp.privacy.accounting import mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.gdp import mu_from_budget

# With fewer effective users, targets are looked at as numbers are; with still fewer, once.
_TARGETS_LOOKED_AT, _LOOKED_AT_ONCE = 20, 8


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
    target_look : float
        First look at the targets, in place of votes for their unit, where users are few; the location is then a second
        look.
    scale : float
        First look at the numbers (the features that are not boolean): their sizes and signs; and the typical norm of
        the booleans' rates.
    location : float
        Each later look, if it asked about all numbers: where they lie and how wide they are.
    looks : float
        What all looks may cost together; no stage of its own.
    centre : float
        Mean of the numbers around where they were seen.
    second_moment : float
        How wide the numbers are.
    rates : float
        How often each boolean is true.
    radius : float
        The typical norm of a user's gradient.
    """

    mu: float
    effective_users: float
    base_rate: float
    target_scale: float
    target_location: float
    target_mean: float
    target_look: float
    scale: float
    location: float
    looks: float
    centre: float
    second_moment: float
    rates: float
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
    (473, 0.02)
    """
    mu = mu_beside((), budget.epsilon, budget.delta)
    N = n_users * mu_from_budget(budget.epsilon, budget.delta)
    numbers = n_features - n_booleans
    root_d = math.sqrt(numbers)
    votes = math.sqrt(2 * (numbers + (n_booleans > 0)))

    def share(low: float, users_needed: float, high: float) -> float:
        """Share of a stage that would be content with so many effective users of its own."""
        return min(max((users_needed / N) ** 2, low), high)

    start = dict.fromkeys(("base_rate", "target_scale", "target_location", "target_mean", "target_look"), 0.0)
    if not is_regression:
        start["base_rate"] = share(0.01, 15, 0.98)
    elif N < _LOOKED_AT_ONCE:
        start["target_look"] = 0.9
    elif N < _TARGETS_LOOKED_AT:
        start |= {"target_look": 0.54, "target_location": 0.225, "target_mean": 0.135}
    else:
        start |= {
            "target_scale": share(0.02, 14, 0.35),
            "target_location": share(0.01, 16, 0.45),
            "target_mean": share(0.02, 10, 0.1),
        }
    if not has_centre:
        start |= {"target_location": 0.0, "target_mean": 0.0}

    def error(part: float, size: float) -> float:
        """Noise of a stage, in what its answer is good for: votes as a share of the users, means in units."""
        return size / (N * math.sqrt(part)) if part else 0.0

    # Beyond these a stage only adds noise. Numbers whose size is unknown are left out altogether.
    left = 1 - sum(start.values())
    features = {
        "scale": left * share(0.025, 11 * votes, 0.3),
        "location": left * share(0.025, 8 * votes, 0.12) if numbers and has_centre else 0.0,
        "centre": left * 0.01 if numbers and has_centre else 0.0,
        "second_moment": left * share(0.01, 8 * root_d, 0.04) if numbers else 0.0,
        "rates": left * share(0.003, 6 * math.sqrt(n_booleans), 0.03) if n_booleans else 0.0,
        "radius": left * share(0.002, 25, 0.08),
    }
    if error(features["scale"], votes) > 0.45:
        features |= dict.fromkeys(("scale", "location", "centre", "second_moment", "rates"), 0.0)
    if error(features["location"], votes) > 0.25:
        features["location"] = 0.0
    if error(features["centre"], 2 * root_d) > 0.5:
        features["centre"] = 0.0
    if error(features["second_moment"], 0.8 * root_d) > 0.3:
        features["second_moment"] = 0.0
    features["looks"] = left * 0.5 if features["scale"] else 0.0
    parts = {name: mu * math.sqrt(part) for name, part in (start | features).items()}
    return Shares(mu=mu, effective_users=N, **parts)
