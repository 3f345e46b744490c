"""Losses of a linear predictor: l(theta; x, y) = phi(<x, theta>, y)."""

import math
from abc import abstractmethod
from typing import final

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from userdp.errors import InvalidInputError
from userdp.problems._checks import nonnegative
from userdp.problems.ball import BallMarginal
from userdp.problems.loss import Constants, Item, Loss

__all__ = ["GLM", "LinearPredictorLoss", "aligned", "linear_predictions"]


def aligned(prediction: ArrayLike, *others: ArrayLike) -> tuple[Array, ...]:
    """All as arrays of the prediction's floating type, so that integer labels never change it."""
    p = jnp.asarray(prediction)
    p = p.astype(jnp.result_type(p, float))
    return p, *(jnp.asarray(other).astype(p.dtype) for other in others)


def linear_predictions(theta: Array, features: Array) -> Array:
    """``<x, theta>`` for features of shape ``(..., d)``."""
    if theta.ndim != 1 or features.ndim < 1 or features.shape[-1] != theta.shape[0]:
        raise InvalidInputError(
            f"theta must have shape (d,) and features (..., d), got {theta.shape} and {features.shape}; "
            "give one coefficient per feature column (the intercept is a column of ones)."
        )
    return features @ theta


class LinearPredictorLoss(Loss):
    """A loss whose gradient is a multiple of the features: ``grad l(theta; x, y) = slope * x``.

    An engine averages a user's m gradients as ``features.T @ slopes / m``: two matrix-vector
    products, no (m, d) array of gradients.
    """

    @abstractmethod
    def values(self, theta: Array, features: Array, targets: Array) -> Array:
        """Losses of items with features ``(..., d)`` and targets ``(...)``, shape ``(...)``."""

    @abstractmethod
    def slopes_at(self, predictions: Array, norms: Array, targets: Array) -> Array:
        """Return the derivatives at predictions ``<x, theta>`` of items with norms ``|x|``, elementwise."""

    def slopes(self, theta: Array, features: Array, targets: Array) -> Array:
        """Return the derivatives with respect to ``<x, theta>``, shape ``(...)``."""
        norms = jnp.linalg.norm(features, axis=-1)
        return self.slopes_at(linear_predictions(theta, features), norms, targets)

    @final
    def item_value(self, theta: Array, item: Item) -> Array:
        """``l(theta; x, y)`` for the item ``(x, y)``."""
        x, y = item
        return self.values(theta, x, y)

    @final
    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``slope * x`` for the item ``(x, y)``."""
        x, y = item
        gradient: Array = self.slopes(theta, x, y) * x
        return gradient


class GLM(LinearPredictorLoss):
    """A scalar convex function phi(prediction, target), applied to ``<x, theta>``.

    All methods are elementwise, broadcast, keep the prediction's floating type, and can be jitted,
    vectorised and differentiated. At a kink the derivative is the middle of the subdifferential: the
    choice of ``jax.grad``, and the limit of the smoothed derivative as its radius goes to 0.

    ``lipschitz``, ``smoothness`` and ``strong_convexity`` speak of phi as a function of the
    prediction; `constants` turns them into those of ``theta -> l(theta; x, y)``.
    """

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Least upper bound of |phi'|, infinite where there is none."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Least upper bound of phi'', infinite where phi' jumps."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """Greatest lower bound of phi''."""

    @abstractmethod
    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``phi(p, y)``."""

    @abstractmethod
    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """Return a subgradient of ``p -> phi(p, y)``."""

    @abstractmethod
    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E phi(p + width B, y)``, B following ``marginal``."""

    @abstractmethod
    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E phi'(p + width B, y)``, B following ``marginal``."""

    @final
    def values(self, theta: Array, features: Array, targets: Array) -> Array:
        """``phi(<x, theta>, y)``."""
        return self.value(linear_predictions(theta, features), targets)

    @final
    def slopes_at(self, predictions: Array, norms: Array, targets: Array) -> Array:
        """``phi'(<x, theta>, y)``; the norms do not matter."""
        return self.derivative(predictions, targets)

    @final
    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """For |x| <= B: G = B sup|phi'|, beta = B^2 sup phi''.

        One item sees theta along x only, so its strong convexity is 0 whatever that of phi.
        """
        B = nonnegative("feature_bound", feature_bound, "declare a bound on |x|")
        return Constants(
            lipschitz=_product(self.lipschitz, B),
            smoothness=_product(self.smoothness, B**2),
            strong_convexity=0.0,
        )


def _product(constant: float, scale: float) -> float:
    # A zero bound means x = 0, where the loss does not depend on theta: 0 * inf is 0 here.
    return 0.0 if scale == 0 else constant * scale
