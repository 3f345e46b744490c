"""User-level differentially private learning: protect whole people, not rows."""

from userdp import means, mechanisms, optimizers, privacy, problems
from userdp.errors import (
    BudgetExceededError,
    InvalidInputError,
    NotConcentratedError,
    PrivacyWarning,
    TooFewUsersError,
    UserDPError,
)
from userdp.means import MeanRelease, mean
from userdp.optimizers import Solution
from userdp.planning import Plan, plan
from userdp.privacy import Budget, PrivacyStatement
from userdp.training import minimize

__version__ = "0.1.0.dev0"

_ESTIMATORS = ("HuberRegressor", "LinearRegression", "LinearSVC", "LogisticRegression", "QuantileRegressor")


def __getattr__(name: str) -> object:
    """Load the estimators when they are asked for: the numerical core needs no scikit-learn."""
    if name in _ESTIMATORS:
        from userdp import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'userdp' has no attribute {name!r}")


__all__ = [
    "Budget",
    "BudgetExceededError",
    "HuberRegressor",
    "InvalidInputError",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "MeanRelease",
    "NotConcentratedError",
    "Plan",
    "PrivacyStatement",
    "PrivacyWarning",
    "QuantileRegressor",
    "Solution",
    "TooFewUsersError",
    "UserDPError",
    "__version__",
    "mean",
    "means",
    "mechanisms",
    "minimize",
    "optimizers",
    "plan",
    "privacy",
    "problems",
]
