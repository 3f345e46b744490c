r"""What the default fit of a classifier is expected to lose, from public numbers alone.

The model: n users of m rows, all independent; d numbers around zero, of spread 1, uncorrelated; log odds linear in them
with coefficients of norm r = 1. A user's gradient at the start then has length about sqrt(k/(4 m) + (h r)^2) for
k = d + 1 and h the mean of p (1 - p), and all that ``fit`` chooses follows. Averaged gradient descent is a linear
filter: of every coefficient it keeps a known share, and of every round's noise, so that

    excess loss = (h/2) (k noise^2 + (1 - length)^2 r^2 + (length error)^2) + k/(2 n m),

the last part being what a fit without privacy loses, and the length what calibration makes of that share. Where the
budget does not suffice to find the features' units the model is a base rate. Real tables are correlated, heterogeneous
and heavy-tailed, and lose more.
"""

import math

import numpy as np

from userdp.errors import InvalidInputError
from userdp.planning.calibration import (
    calibration_radius,
    calibration_share,
    expected_length,
    length_trust,
)
from userdp.planning.descent import (
    AVERAGED_SHARE,
    LOG_ODDS_SIGNAL,
    Descent,
    Group,
    clip_ratio,
    descent,
    pilot_share,
    share_kept,
)
from userdp.planning.shares import shares
from userdp.privacy.budget import Budget

# Of log odds with the standard normal law: the mean of p (1 - p), and what the best constant loses.
_CURVATURE, _CONSTANT_LOSES = 0.2066, 0.1047
# p (1 - p) at the start, where both classes are equally likely.
_START_CURVATURE = 0.25


def expected_excess_loss(n_users: int, items_per_user: int, n_features: int, budget: Budget) -> float:
    """Return the expected excess logistic loss of the default fit; read no data.

    Examples
    --------
    >>> few, many = (expected_excess_loss(n, 20, 10, Budget(1.0, 1e-6)) for n in (500, 50_000))
    >>> 0.001 < few < 0.1, many < 1e-4
    (True, True)
    """
    for name, value in (("users", n_users), ("items", items_per_user), ("features", n_features)):
        if not value >= 1:
            raise InvalidInputError(f"{name} must be an integer >= 1, got {value!r}")
    split = shares(n_users, n_features, budget, is_regression=False)
    base_rate = min(1 / (8 * _START_CURVATURE * (n_users * split.base_rate) ** 2), 0.25)
    if not split.scale:
        return _CONSTANT_LOSES + base_rate
    k = n_features + 1
    # Numbers around zero need no later look.
    stages = ("base_rate", "scale", "centre", "second_moment", "radius")
    left = math.sqrt(split.mu**2 - sum(getattr(split, stage) ** 2 for stage in stages))
    ratio = clip_ratio(split.effective_users, k)
    typical = math.sqrt(k / (4 * items_per_user) + _CURVATURE**2)
    asked = calibration_share(split.effective_users, 2)
    length_mu, left = left * math.sqrt(asked), left * math.sqrt(1 - asked)
    assumed, really = share_kept(ratio), min(1.0, ratio)
    groups = (Group(np.ones(k), 1 / k),)
    noise = 2 * ratio * typical / (n_users * left)
    noise /= math.sqrt(1 - pilot_share(groups, noise / assumed, _START_CURVATURE))
    chosen = descent(
        groups, noise / assumed, signal=LOG_ODDS_SIGNAL, curvature=_START_CURVATURE, kept=assumed
    )
    share, spread = _filter(chosen, noise, really * _CURVATURE, assumed * float(chosen.ridges[0][0]))
    longer = _lengthened(chosen, k)
    share, spread = share * longer, spread * longer
    before, trust, error = expected_length(ratio), 0.0, 0.0
    if length_mu:
        radius = calibration_radius(
            split.effective_users, typical / math.sqrt(k), 2, is_classification=True, log_odds=0.0
        )
        error = 2 * radius / (n_users * length_mu * _START_CURVATURE)
        trust = length_trust(share, error)
    length = before * share + trust * (1 - before * share)
    private = _CURVATURE / 2 * (k * (spread * length / share) ** 2 + (1 - length) ** 2 + (trust * error) ** 2)
    return min(private, _CONSTANT_LOSES + base_rate + private / 2) + k / (2 * n_users * items_per_user)


def users_for(target: float, items_per_user: int, n_features: int, budget: Budget) -> int:
    """Return how many users an expected excess loss of ``target`` needs, within 2%.

    Examples
    --------
    >>> budget = Budget(1.0, 1e-6)
    >>> n = users_for(0.001, 20, 10, budget)
    >>> expected_excess_loss(n, 20, 10, budget) <= 0.001 < expected_excess_loss(n // 2, 20, 10, budget)
    True
    """
    if not target > 0:
        raise InvalidInputError(f"the target error must be positive, got {target!r}")

    def is_enough(n: int) -> bool:
        return expected_excess_loss(n, items_per_user, n_features, budget) <= target

    low, high = 1, 2
    while not is_enough(high):
        low, high = high, 2 * high
        if high > 10**15:
            raise InvalidInputError(f"no number of users reaches an error of {target:g}")
    while high - low > max(1, high // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _lengthened(chosen: Descent, k: int) -> float:
    """By how much the coefficients are multiplied at the end, if their variance is found to be 1/k."""
    gone = float(chosen.gone[0][0])
    return 1 / (gone * (1 + k * (float(chosen.noise_std[0][0]) / gone) ** 2))


def _filter(chosen: Descent, noise: float, curvature: float, ridge: float) -> tuple[float, float]:
    """Share of a coefficient that averaged gradient descent finds, and standard deviation of what noise adds."""
    T = chosen.rounds
    first = T - round(AVERAGED_SHARE * T)
    powers = (1 - float(chosen.steps[0][0]) * (curvature + ridge)) ** np.arange(T + 1)
    share = curvature / (curvature + ridge) * (1 - powers[first + 1 :].mean())
    sums = np.concatenate([[0.0], np.cumsum(powers)])  # sums[i] = 1 + a + ... + a^(i - 1)
    rounds = np.arange(T)
    weights = (sums[T - rounds] - sums[np.maximum(first - rounds, 0)]) / (T - first)
    spread = noise * math.sqrt(T) * float(chosen.steps[0][0]) * math.sqrt(float(weights @ weights))
    return float(share), spread
