"""Binary classification losses; the target y is 0 or 1, and s = 2y - 1 its sign."""

from dataclasses import dataclass
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from userdp.problems.ball import BallMarginal
from userdp.problems.glm import GLM, aligned

__all__ = ["Hinge", "Logistic", "SquaredHinge"]


@final
@dataclass(frozen=True)
class Logistic(GLM):
    """Logistic loss ``log(1 + e^p) - y p``, for y in [0, 1] (probabilities are allowed as targets).

    Derivative ``1/(1 + e^-p) - y``; Lipschitz 1, approached as p -> ±inf; smooth 1/4, attained at p = 0.
    Both are computed as the mixture of their y = 0 and y = 1 forms, so that neither tail loses its
    relative precision. Smoothing: Gauss quadrature, off by at most 4e-8 (slope) and 3e-7 (value) while
    ``width <= 5``.
    """

    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    strong_convexity: ClassVar[float] = 0.0

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``y log(1 + e^-p) + (1 - y) log(1 + e^p)``."""
        p, y = aligned(prediction, target)
        return y * jax.nn.softplus(-p) + (1 - y) * jax.nn.softplus(p)

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``(1 - y)/(1 + e^-p) - y/(1 + e^p)``."""
        p, y = aligned(prediction, target)
        return (1 - y) * jax.nn.sigmoid(p) - y * jax.nn.sigmoid(-p)

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E log(1 + e^(p + w B)) - y p`` by quadrature."""
        p, y, w = (a[..., None] for a in aligned(prediction, target, width))
        return marginal.mean(lambda b: self.value(p + w * b, y), p.dtype)

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E 1/(1 + e^-(p + w B)) - y`` by quadrature."""
        p, y, w = (a[..., None] for a in aligned(prediction, target, width))
        return marginal.mean(lambda b: self.derivative(p + w * b, y), p.dtype)


@final
@dataclass(frozen=True)
class Hinge(GLM):
    """Hinge loss ``max(0, 1 - s p)``: the support vector machine.

    Derivative ``-s`` where ``s p < 1``, 0 where ``s p > 1``, and ``-s/2`` at the kink; Lipschitz 1,
    attained; not smooth.
    """

    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = float("inf")
    strong_convexity: ClassVar[float] = 0.0

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``max(0, 1 - s p)``."""
        p, y = aligned(prediction, target)
        return jnp.maximum(1 - (2 * y - 1) * p, 0)

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``-s 1(s p < 1)``, halved at the kink."""
        p, y = aligned(prediction, target)
        s = 2 * y - 1
        return -s * jnp.heaviside(1 - s * p, 0.5)

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E max(0, 1 - s p + w B)``, B being symmetric."""
        p, y, w = aligned(prediction, target, width)
        return marginal.positive_part(1 - (2 * y - 1) * p, w)

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``-s P(1 - s p + w B > 0)``."""
        p, y, w = aligned(prediction, target, width)
        s = 2 * y - 1
        return -s * marginal.step(1 - s * p, w)


@final
@dataclass(frozen=True)
class SquaredHinge(GLM):
    """Squared hinge loss ``max(0, 1 - s p)^2 / 2``.

    Derivative ``-s max(0, 1 - s p)``; not Lipschitz; smooth 1, attained where ``s p < 1``.
    """

    lipschitz: ClassVar[float] = float("inf")
    smoothness: ClassVar[float] = 1.0
    strong_convexity: ClassVar[float] = 0.0

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``max(0, 1 - s p)^2 / 2``."""
        p, y = aligned(prediction, target)
        return 0.5 * jnp.maximum(1 - (2 * y - 1) * p, 0) ** 2

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``-s max(0, 1 - s p)``."""
        p, y = aligned(prediction, target)
        s = 2 * y - 1
        return -s * jnp.maximum(1 - s * p, 0)

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E max(0, 1 - s p + w B)^2 / 2``."""
        p, y, w = aligned(prediction, target, width)
        return 0.5 * marginal.positive_square(1 - (2 * y - 1) * p, w)

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``-s E max(0, 1 - s p + w B)``."""
        p, y, w = aligned(prediction, target, width)
        s = 2 * y - 1
        return -s * marginal.positive_part(1 - s * p, w)
