"""What the estimators share: checking input, fitting privately, carrying only what was released."""

import math
import os
import sys
import warnings
from dataclasses import replace
from operator import index
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

import userdp
from userdp.arrays import FloatArray
from userdp.data.parts import AnyUsers, changed
from userdp.data.stored import StoredUsers
from userdp.data.users import Users
from userdp.engines.interface import Engine, LocalEngine, storage_of
from userdp.errors import InvalidInputError, PrivacyWarning
from userdp.estimators import fitting
from userdp.estimators.fitting import FittedLinear, Options, Task
from userdp.estimators.inputs import boolean_columns, check_stored, encode_classes, numeric_targets, read_rows
from userdp.estimators.linear_model import LinearModel
from userdp.estimators.rows import in_double
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.optimizers.checkpoint import Checkpoint
from userdp.privacy.budget import Budget

# What passes one fit on, or stands between a caller and its fits.
_FITS_ONCE = (
    "sklearn.base",
    "sklearn.compose",
    "sklearn.feature_selection._from_model",
    "sklearn.frozen",
    "sklearn.pipeline",
    "sklearn.utils",
)


class PrivateLinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model fitted with user-level differential privacy: what all estimators share.

    ``fit`` takes rows, or users on disk from ``userdp.data.store_users``, who need not fit in memory: the same
    answer bit for bit.

    Parameters
    ----------
    epsilon, delta : float
        The budget, for each whole user.
    fit_intercept : bool
        Whether the predictor has a constant term. Without one, features are scaled but not centred.
    ridge : float
        Strength of an additional ridge penalty on scaled features.
    coefficient_bound : float, optional
        Bound on the norm of the coefficients of scaled features, the intercept among them.
    min_items, max_items : int
        Users with fewer rows are null; of more rows a random subset is used.
    rounds : int, optional
        Rounds of descent, chosen from the budget by default.
    unit : str
        What a user is, for the statement.
    random_state : int, optional
        A seed makes the result repeatable, for experiments only, and the statement says so.
    engine : Engine, optional
        Who computes the users' gradients: ``LocalEngine(device="gpu")``, ``RayEngine(address)``; this machine by
        default.
    checkpoint : path, optional
        A folder from which an interrupted fit on the same data goes on. As sensitive as the data while it exists.

    Attributes
    ----------
    coef_, intercept_ : arrays
        On the original scale of the features, which are clipped to ``feature_low_``, ``feature_high_`` first.
    feature_scale_ : array
        One unit of each feature, about a standard deviation; infinite for those that were left out.
    noise_std_ : array
        Standard deviation of the noise on each coefficient, to first order.
    n_users_, n_features_in_, n_iter_ : int
        Users, features and rounds.
    plan_ : Shares
        How the budget was split.
    privacy_ : PrivacyStatement
        The guarantee.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        coefficient_bound: float | None = None,
        min_items: int = 1,
        max_items: int | None = None,
        rounds: int | None = None,
        unit: str = "user",
        random_state: int | None = None,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.fit_intercept = fit_intercept
        self.ridge = ridge
        self.coefficient_bound = coefficient_bound
        self.min_items = min_items
        self.max_items = max_items
        self.rounds = rounds
        self.unit = unit
        self.random_state = random_state
        self.engine = engine
        self.checkpoint = checkpoint

    def _options(self) -> Options:
        for name in ("epsilon", "delta", "ridge"):
            if not _is_number(getattr(self, name)):
                raise InvalidInputError(f"{name} must be a number, got {getattr(self, name)!r}")
        if self.ridge < 0:
            raise InvalidInputError(f"ridge must not be negative, got {self.ridge!r}")
        bound = self.coefficient_bound
        if bound is not None and not (_is_number(bound) and bound > 0):
            raise InvalidInputError(f"coefficient_bound must be a positive number or None, got {bound!r}")
        for name in ("rounds", "max_items", "min_items"):
            value = getattr(self, name)
            if not (_is_count(value) or (value is None and name != "min_items")):
                raise InvalidInputError(f"{name} must be a whole number, at least 1, got {value!r}")
        if self.max_items is not None and self.max_items < self.min_items:
            raise InvalidInputError(
                f"max_items = {self.max_items} is below min_items = {self.min_items}: every user would be null"
            )
        return Options(
            fit_intercept=self.fit_intercept,
            min_items=self.min_items,
            max_items=self.max_items,
            rounds=self.rounds,
            ridge=self.ridge,
            coefficient_bound=self.coefficient_bound,
        )

    def _fit(
        self,
        X: ArrayLike | StoredUsers,
        y: ArrayLike | None,
        groups: ArrayLike | None,
        task: Task,
        classes: tuple[Any, ...] | None = None,
    ) -> Self:
        """Fit on encoded targets; what can be refused is refused before any noise is drawn."""
        if isinstance(X, StoredUsers):
            check_stored(X, y, groups, classes)
            targets = None
        else:
            targets = numeric_targets(y) if classes is None else encode_classes(y, classes)
        options = self._options()
        budget = Budget(self.epsilon, self.delta, self.unit)
        noise = noise_source(self.random_state)
        users = self._from_disk(X) if isinstance(X, StoredUsers) else self._from_rows(X, targets, groups)
        if users.n_users < 2:
            raise InvalidInputError("there is only one user; privacy among users needs at least 2")
        budget.warn_if_weak_for(users.n_users)
        _warn_if_searching()
        booleans = X.booleans if isinstance(X, StoredUsers) else tuple(boolean_columns(X).tolist())
        options = replace(options, booleans=booleans)
        fitted = self._run(users, task, budget, options, noise)
        if classes is not None:
            fitted = _for_sorted_classes(fitted, classes)
        self.coef_ = fitted.coefficients
        self.intercept_ = fitted.intercepts
        self.feature_low_, self.feature_high_, self.feature_scale_ = fitted.low, fitted.high, fitted.scale
        self.noise_std_ = fitted.noise_std
        self.n_users_ = users.n_users
        self.n_iter_ = fitted.rounds
        self.plan_ = fitted.plan
        self.privacy_ = fitted.privacy
        return self

    def _from_rows(self, X: ArrayLike, targets: FloatArray | None, groups: ArrayLike | None) -> Users:
        if groups is None:
            raise InvalidInputError(
                "groups is missing: fit(X, y, groups=ids) needs one user id per row, it says whose row is whose"
            )
        rows = read_rows(X)
        validate_data(self, X, skip_check_array=True)
        return Users.from_rows(rows, groups, targets)

    def _from_disk(self, stored: StoredUsers) -> AnyUsers:
        self.n_features_in_ = stored.n_features
        self.feature_names_in_ = np.array(stored.feature_names, dtype=object)
        return changed(stored, in_double)

    def _run(
        self, users: AnyUsers, task: Task, budget: Budget, options: Options, noise: NoiseSource
    ) -> FittedLinear:
        """Fit, and keep what an interrupted fit needs where a checkpoint was asked for."""
        options = replace(options, engine=self.engine if self.engine is not None else LocalEngine())
        if self.checkpoint is None:
            return fitting.fit(users, task, budget, options, noise)
        # Any engine gives the same answer, but for how it rounds rows.
        public = replace(options, engine=LocalEngine(storage=storage_of(options.engine)))
        with Checkpoint(self.checkpoint) as kept:
            noise = kept.noise(noise, users, task, budget, public, self.random_state)
            fitted = fitting.fit(users, task, budget, replace(options, progress=kept.progress()), noise)
            kept.finish()
        return fitted

    def _predictor(self, X: ArrayLike) -> FloatArray:
        """Return the linear predictor, shape (n_rows, k)."""
        check_is_fitted(self, "coef_")
        table: FloatArray = validate_data(self, X, dtype=np.float64, reset=False)
        return self.to_model().decision(table)

    def to_model(self) -> LinearModel:
        """Return everything that was released, ready to be saved."""
        check_is_fitted(self, "coef_")
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        return LinearModel(
            kind=type(self).__name__,
            feature_names=tuple(str(name) for name in names),
            coefficients=np.atleast_2d(self.coef_),
            intercepts=np.atleast_1d(self.intercept_),
            low=self.feature_low_,
            high=self.feature_high_,
            scale=self.feature_scale_,
            noise_std=np.atleast_2d(self.noise_std_),
            classes=tuple(np.asarray(self.classes_).tolist()) if hasattr(self, "classes_") else None,
            privacy=self.privacy_.to_dict(),
            details={"rounds": int(self.n_iter_), "userdp": userdp.__version__},
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.target_tags.required = True
        return tags


def _for_sorted_classes(fitted: FittedLinear, declared: tuple[Any, ...]) -> FittedLinear:
    """Return the model of the classes in sorted order, which scikit-learn counts on."""
    order = np.array(sorted(range(len(declared)), key=declared.__getitem__))
    if len(fitted.coefficients) == 1:
        sign = 1.0 if order[0] == 0 else -1.0
        return replace(fitted, coefficients=sign * fitted.coefficients, intercepts=sign * fitted.intercepts)
    return replace(
        fitted,
        coefficients=fitted.coefficients[order],
        intercepts=fitted.intercepts[order],
        noise_std=fitted.noise_std[order],
    )


def _warn_if_searching() -> None:
    """Warn when scikit-learn may fit several times: each fit is a release of its own."""
    frame = sys._getframe()
    while frame is not None:
        if _fits_several_times(frame.f_globals.get("__name__", "")):
            warnings.warn(
                "each fit inside a search, a cross-validation or an ensemble spends its whole (epsilon, delta) on "
                "these users, and choosing among them is not accounted for; add the budgets up yourself, or "
                "tune on public data",
                PrivacyWarning,
                stacklevel=4,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]


def _fits_several_times(module: str) -> bool:
    """Tell whether a module's code may fit its estimator more than once; of scikit-learn's, all but a few may."""
    once = any(module == name or module.startswith(f"{name}.") for name in _FITS_ONCE)
    return module.startswith("sklearn.") and not once


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and index(value) >= 1
    except TypeError:
        return False
