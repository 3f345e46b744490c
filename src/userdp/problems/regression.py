"""Regression losses: functions of the residual u = p - y."""

from dataclasses import dataclass
from typing import ClassVar, final

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from userdp.problems._checks import between, positive, settle
from userdp.problems.ball import BallMarginal, standardized
from userdp.problems.glm import GLM, aligned

__all__ = ["Absolute", "Huber", "Pinball", "Squared"]


@final
@dataclass(frozen=True)
class Squared(GLM):
    """Squared loss ``(p - y)^2 / 2``.

    Derivative ``p - y``; not Lipschitz; smooth 1 and strongly convex 1, as functions of p.
    """

    lipschitz: ClassVar[float] = float("inf")
    smoothness: ClassVar[float] = 1.0
    strong_convexity: ClassVar[float] = 1.0

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``(p - y)^2 / 2``."""
        p, y = aligned(prediction, target)
        return 0.5 * (p - y) ** 2

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``p - y``."""
        p, y = aligned(prediction, target)
        return p - y

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``(p - y)^2 / 2 + w^2/(2 (d + 2))``."""
        p, y, w = aligned(prediction, target, width)
        return 0.5 * (p - y) ** 2 + 0.5 * marginal.variance * w**2

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``p - y``: smoothing adds a constant."""
        return self.derivative(prediction, target)


@final
@dataclass(frozen=True)
class Absolute(GLM):
    """Absolute loss ``|p - y|``: median regression.

    Derivative ``sign(p - y)``, 0 at the kink; Lipschitz 1, attained; not smooth.
    """

    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = float("inf")
    strong_convexity: ClassVar[float] = 0.0

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``max(p - y, y - p)``; the gradient of ``jnp.abs`` at 0 would be 1."""
        p, y = aligned(prediction, target)
        return jnp.maximum(p - y, y - p)

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``sign(p - y)``."""
        p, y = aligned(prediction, target)
        return jnp.sign(p - y)

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``2 E max(u + w B, 0) - u``."""
        p, y, w = aligned(prediction, target, width)
        return 2 * marginal.positive_part(p - y, w) - (p - y)

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``2 P(u + w B > 0) - 1``."""
        p, y, w = aligned(prediction, target, width)
        return 2 * marginal.step(p - y, w) - 1


@final
@dataclass(frozen=True)
class Pinball(GLM):
    """Pinball loss ``max((1 - q)(p - y), q (y - p))``: regression on the q-quantile.

    Derivative ``1 - q`` where p > y, ``-q`` where p < y, ``1/2 - q`` at the kink; Lipschitz
    ``max(q, 1 - q)``, attained; not smooth.

    Parameters
    ----------
    quantile : float
        q in (0, 1).
    """

    quantile: float

    smoothness: ClassVar[float] = float("inf")
    strong_convexity: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        settle(self, quantile=between("quantile", self.quantile, 0, 1, "use 0.5 for the median"))

    @property
    def lipschitz(self) -> float:
        """``max(q, 1 - q)``."""
        return max(self.quantile, 1 - self.quantile)

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``max(u, 0) - q u``."""
        p, y = aligned(prediction, target)
        return jnp.maximum((1 - self.quantile) * (p - y), self.quantile * (y - p))

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``1(p > y) - q``, with 1/2 for the indicator at the kink."""
        p, y = aligned(prediction, target)
        return jnp.heaviside(p - y, 0.5) - self.quantile

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E max(u + w B, 0) - q u``."""
        p, y, w = aligned(prediction, target, width)
        return marginal.positive_part(p - y, w) - self.quantile * (p - y)

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``P(u + w B > 0) - q``."""
        p, y, w = aligned(prediction, target, width)
        return marginal.step(p - y, w) - self.quantile


@final
@dataclass(frozen=True)
class Huber(GLM):
    """Huber loss ``u^2 / 2`` where ``|u| <= c``, else ``c |u| - c^2 / 2``.

    Derivative ``clip(p - y, -c, c)``; Lipschitz c and smooth 1, both attained.

    Parameters
    ----------
    threshold : float
        c > 0: residuals beyond it count linearly.
    """

    threshold: float

    smoothness: ClassVar[float] = 1.0
    strong_convexity: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        remedy = "use the residual size from which errors are outliers"
        settle(self, threshold=positive("threshold", self.threshold, remedy))

    @property
    def lipschitz(self) -> float:
        """``c``."""
        return self.threshold

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``v (u - v/2)`` with ``v = clip(u, -c, c)``: no cancellation at large residuals."""
        p, y = aligned(prediction, target)
        clipped = jnp.clip(p - y, -self.threshold, self.threshold)
        return clipped * (p - y - 0.5 * clipped)

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``clip(p - y, -c, c)``."""
        p, y = aligned(prediction, target)
        return jnp.clip(p - y, -self.threshold, self.threshold)

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """Sum of the partial moments of ``u + w B`` over its lower tail, its middle and its upper tail."""
        p, y, w = aligned(prediction, target, width)
        u, c = p - y, self.threshold
        above = marginal.upper_moments(standardized(u - c, w))
        below = marginal.upper_moments(standardized(-u - c, w))
        above_low = marginal.upper_moments(standardized(u + c, w))
        middle = [low - high for low, high in zip(above_low, above, strict=True)]
        return (
            0.5 * (u**2 * middle[0] + 2 * u * w * middle[1] + w**2 * middle[2])
            + c * ((u - c / 2) * above[0] + w * above[1])
            + c * ((-u - c / 2) * below[0] + w * below[1])
        )

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``c P(v > c) - c P(v < -c) + E[v 1(|v| <= c)]`` with ``v = u + w B``."""
        p, y, w = aligned(prediction, target, width)
        u, c = p - y, self.threshold
        mass_high, first_high, _ = marginal.upper_moments(standardized(u - c, w))
        mass_low, first_low, _ = marginal.upper_moments(standardized(u + c, w))
        middle = u * (mass_low - mass_high) + w * (first_low - first_high)
        return c * (mass_high + mass_low - 1) + middle
