"""User-level differentially private learning: protect whole people, not rows."""

from userdp.errors import (
    BudgetExceededError,
    InvalidInputError,
    NotConcentratedError,
    PrivacyWarning,
    TooFewUsersError,
    UserDPError,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "BudgetExceededError",
    "InvalidInputError",
    "NotConcentratedError",
    "PrivacyWarning",
    "TooFewUsersError",
    "UserDPError",
    "__version__",
]
