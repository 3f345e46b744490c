"""Multinomial (softmax) logistic regression."""

import math
from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from userdp.errors import InvalidInputError
from userdp.problems._checks import count, nonnegative, settle
from userdp.problems.loss import Constants, Item, Loss

__all__ = ["Multinomial"]


@final
@dataclass(frozen=True)
class Multinomial(Loss):
    """Softmax loss ``log sum_c e^<x, w_c> - <x, w_y>`` of a class y in {0, ..., k - 1}.

    ``theta`` is the matrix (w_1, ..., w_k) of shape (k, d), flattened by rows. A class outside the range
    counts as none of the classes: its item has the loss ``log sum_c e^<x, w_c>``, and the constants hold.

    With p = softmax(W x), the gradient is ``(p - e_y) x^T``. ``|p - e_y| <= sqrt(2)``, approached as
    all mass goes to one wrong class; the Hessian of log-sum-exp is at most 1/2, attained where two
    classes share all the mass.

    Parameters
    ----------
    n_classes : int
        k >= 2.
    """

    n_classes: int

    def __post_init__(self) -> None:
        settle(self, n_classes=count("n_classes", self.n_classes, 2, "declare how many classes there are"))

    def item_value(self, theta: Array, item: Item) -> Array:
        """``logsumexp(W x) - (W x)_y``."""
        x, y = item
        scores = self._weights(theta, x) @ x
        value: Array = jax.nn.logsumexp(scores) - _one_hot(y, self.n_classes, scores.dtype) @ scores
        return value

    def n_parameters(self, n_features: int) -> int:
        """One row of ``n_features`` for each class."""
        return self.n_classes * n_features

    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``(softmax(W x) - e_y) x^T``, flattened."""
        x, y = item
        return jnp.outer(self.residuals(theta, x, y), x).ravel()

    def residuals(self, theta: Array, features: Array, targets: Array) -> Array:
        """``softmax(W x) - e_y`` for features ``(..., d)``, shape ``(..., k)``."""
        scores = features @ self._weights(theta, features).T
        return jax.nn.softmax(scores) - _one_hot(targets, self.n_classes, scores.dtype)

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """For |x| <= B: G = sqrt(2) B, beta = B^2/2; not strongly convex."""
        B = nonnegative("feature_bound", feature_bound, "declare a bound on |x|")
        return Constants(math.sqrt(2) * B, 0.5 * B**2, 0.0)

    def _weights(self, theta: Array, x: Array) -> Array:
        expected = (self.n_classes * x.shape[-1],)
        if theta.shape != expected:
            raise InvalidInputError(
                f"theta must have shape {expected} (n_classes x features, flattened), got {theta.shape}; "
                "flatten the (n_classes, d) matrix by rows."
            )
        return theta.reshape(self.n_classes, -1)


def _one_hot(targets: Array, n_classes: int, dtype: DTypeLike) -> Array:
    """``e_y``, and zero for a class outside the range; targets may be floats."""
    return (jnp.asarray(targets)[..., None] == jnp.arange(n_classes)).astype(dtype)
