"""User-level differentially private learning: protect whole people, not rows."""

from userdp import means, mechanisms, privacy
from userdp.errors import (
    BudgetExceededError,
    InvalidInputError,
    NotConcentratedError,
    PrivacyWarning,
    TooFewUsersError,
    UserDPError,
)
from userdp.means import MeanRelease, mean
from userdp.privacy import Budget, PrivacyStatement

__version__ = "0.1.0.dev0"

__all__ = [
    "Budget",
    "BudgetExceededError",
    "InvalidInputError",
    "MeanRelease",
    "NotConcentratedError",
    "PrivacyStatement",
    "PrivacyWarning",
    "TooFewUsersError",
    "UserDPError",
    "__version__",
    "mean",
    "means",
    "mechanisms",
    "privacy",
]
