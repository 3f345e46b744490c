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

__all__ = [
    "Budget",
    "BudgetExceededError",
    "InvalidInputError",
    "MeanRelease",
    "NotConcentratedError",
    "Plan",
    "PrivacyStatement",
    "PrivacyWarning",
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
