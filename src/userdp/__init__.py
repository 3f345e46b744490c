"""User-level differentially private learning: protect whole people, not rows."""

from importlib import import_module
from typing import TYPE_CHECKING

from userdp.errors import (
    BudgetExceededError,
    InvalidInputError,
    NotConcentratedError,
    PrivacyWarning,
    TooFewUsersError,
    UserDPError,
)

if TYPE_CHECKING:
    from userdp import means, mechanisms, optimizers, privacy, problems
    from userdp.estimators import (
        HuberRegressor,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        QuantileRegressor,
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

# Where a name lives; it is loaded when it is asked for, so that nobody waits for JAX or needs scikit-learn in vain.
_HOMES = {
    "Budget": "privacy",
    "HuberRegressor": "estimators",
    "LinearRegression": "estimators",
    "LinearSVC": "estimators",
    "LogisticRegression": "estimators",
    "MeanRelease": "means",
    "Plan": "planning",
    "PrivacyStatement": "privacy",
    "QuantileRegressor": "estimators",
    "Solution": "optimizers",
    "mean": "means",
    "minimize": "training",
    "plan": "planning",
}
_PACKAGES = (
    "audit", "data", "engines", "estimators", "means", "mechanisms", "optimizers", "planning", "privacy", "problems",
    "report", "training",
)  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"userdp.{_HOMES[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"userdp.{name}")
    raise AttributeError(f"module 'userdp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
