"""Private linear regressions: least squares, Huber, and quantiles."""

import os
from typing import Self

from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from userdp.arrays import FloatArray
from userdp.data.stored import StoredUsers
from userdp.engines.interface import Engine
from userdp.estimators.base import PrivateLinearEstimator
from userdp.estimators.fitting import Task
from userdp.problems import Huber, Pinball, Squared


class PrivateRegressor(RegressorMixin, PrivateLinearEstimator):  # type: ignore[misc]
    """Regression on targets whose unit and middle are found privately."""

    def _fit_regression(
        self, X: ArrayLike | StoredUsers, y: ArrayLike | None, groups: ArrayLike | None, task: Task
    ) -> Self:
        self._fit(X, y, groups, task)
        self.coef_, self.noise_std_ = self.coef_[0], self.noise_std_[0]
        self.intercept_ = self.intercept_[0]
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Return the prediction of each row."""
        return self._predictor(X)[:, 0]


class LinearRegression(PrivateRegressor):
    """Least squares that protects each whole user.

    Parameters and attributes are those of :class:`~userdp.estimators.base.PrivateLinearEstimator`.

    **Guarantee**: (epsilon, delta)-DP for replacing all rows of one user (``docs/proofs/stages.md``).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> y = 50 + 10 * X[:, 0] + rng.normal(size=20_000)
    >>> model = LinearRegression(epsilon=1.0, delta=1e-6, random_state=0)
    >>> model = model.fit(X, y, groups=np.repeat(np.arange(2_000), 10))
    >>> model.score(X, y) > 0.9
    True
    """

    def fit(
        self, X: ArrayLike | StoredUsers, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X with targets y; ``groups`` says whose row is whose. Stored users bring both along."""
        return self._fit_regression(X, y, groups, Task(Squared(), curvature=1.0))


class HuberRegressor(PrivateRegressor):
    """Huber regression that protects each whole user.

    **Guarantee**: (epsilon, delta)-DP for replacing all rows of one user (``docs/proofs/stages.md``).

    Parameters
    ----------
    threshold : float
        Residuals beyond it count linearly; in units of the privately found scale of the targets.
        (scikit-learn calls it epsilon.)
    epsilon, delta, fit_intercept, ridge, coefficient_bound, min_items, max_items, rounds
        See :class:`~userdp.estimators.base.PrivateLinearEstimator`.
    unit, random_state, engine, checkpoint
        See :class:`~userdp.estimators.base.PrivateLinearEstimator`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        threshold: float = 1.35,
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
        super().__init__(
            epsilon,
            delta,
            fit_intercept=fit_intercept,
            ridge=ridge,
            coefficient_bound=coefficient_bound,
            min_items=min_items,
            max_items=max_items,
            rounds=rounds,
            unit=unit,
            random_state=random_state,
            engine=engine,
            checkpoint=checkpoint,
        )
        self.threshold = threshold

    def fit(
        self, X: ArrayLike | StoredUsers, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X with targets y; ``groups`` says whose row is whose. Stored users bring both along."""
        return self._fit_regression(X, y, groups, Task(Huber(self.threshold), curvature=0.8))


class QuantileRegressor(PrivateRegressor):
    """Linear regression of a quantile that protects each whole user.

    **Guarantee**: (epsilon, delta)-DP for replacing all rows of one user (``docs/proofs/stages.md``).

    Parameters
    ----------
    quantile : float
        Which quantile of the target is predicted, between 0 and 1.
    epsilon, delta, fit_intercept, ridge, coefficient_bound, min_items, max_items, rounds
        See :class:`~userdp.estimators.base.PrivateLinearEstimator`.
    unit, random_state, engine, checkpoint
        See :class:`~userdp.estimators.base.PrivateLinearEstimator`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        quantile: float = 0.5,
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
        super().__init__(
            epsilon,
            delta,
            fit_intercept=fit_intercept,
            ridge=ridge,
            coefficient_bound=coefficient_bound,
            min_items=min_items,
            max_items=max_items,
            rounds=rounds,
            unit=unit,
            random_state=random_state,
            engine=engine,
            checkpoint=checkpoint,
        )
        self.quantile = quantile

    def fit(
        self, X: ArrayLike | StoredUsers, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X with targets y; ``groups`` says whose row is whose. Stored users bring both along."""
        return self._fit_regression(X, y, groups, Task(Pinball(self.quantile), curvature=0.4))
