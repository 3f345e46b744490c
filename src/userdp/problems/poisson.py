"""The Poisson loss of a count."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from userdp.problems._checks import between, positive, settle
from userdp.problems.ball import BallMarginal, standardized
from userdp.problems.glm import GLM, aligned

__all__ = ["Poisson"]

# exp(80) = 5.5e34 leaves float32, which ends at 3.4e38, room for sums.
_LARGEST_LOG_RATE = 80.0


@final
@dataclass(frozen=True)
class Poisson(GLM):
    """Poisson loss ``e^p - y p`` of a count y, with e^p continued linearly beyond p = b.

    ``E(p) = e^p`` for p <= b and ``e^b (1 + p - b)`` beyond: convex, once differentiable, the Poisson
    likelihood wherever the log-rate respects its declared bound. Counts are clipped to [0, max_count],
    so that the constants hold for every item.

    Derivative ``e^min(p, b) - y``; Lipschitz ``max(e^b, max_count)``; smooth ``e^b``, approached as p -> b.
    Smoothing: Gauss-Legendre up to the bound and closed form beyond it; relative error below 1e-8
    in float64 while ``width <= 4``.

    Parameters
    ----------
    max_log_rate : float
        b in (-80, 80).
    max_count : float
        Largest count that is told apart.
    """

    max_log_rate: float
    max_count: float

    strong_convexity: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        rate = "it is the logarithm of the largest expected count"
        size = "declare the largest count that an item can hold"
        settle(
            self,
            max_log_rate=between(
                "max_log_rate", self.max_log_rate, -_LARGEST_LOG_RATE, _LARGEST_LOG_RATE, rate
            ),
            max_count=positive("max_count", self.max_count, size),
        )

    @property
    def lipschitz(self) -> float:
        """``max(e^b, max_count)``."""
        return max(math.exp(self.max_log_rate), self.max_count)

    @property
    def smoothness(self) -> float:
        """``e^b``."""
        return math.exp(self.max_log_rate)

    def value(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``e^min(p, b) (1 + max(p - b, 0)) - y p``."""
        p, y = aligned(prediction, target)
        b = self.max_log_rate
        return jnp.exp(jnp.minimum(p, b)) * (1 + jnp.maximum(p - b, 0)) - self._count(y) * p

    def derivative(self, prediction: ArrayLike, target: ArrayLike) -> Array:
        """``e^min(p, b) - y``."""
        p, y = aligned(prediction, target)
        return jnp.exp(jnp.minimum(p, self.max_log_rate)) - self._count(y)

    def smoothed_value(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E[e^v; v <= b] + e^b E[1 + v - b; v > b] - y p`` with ``v = p + w B``."""
        p, y, w = aligned(prediction, target, width)
        b = self.max_log_rate
        mass, first, _ = marginal.upper_moments(standardized(p - b, w))
        beyond = math.exp(b) * ((1 + p - b) * mass + w * first)
        return self._rate_below_bound(p, w, marginal) + beyond - self._count(y) * p

    def smoothed_derivative(
        self, prediction: ArrayLike, target: ArrayLike, width: ArrayLike, marginal: BallMarginal
    ) -> Array:
        """``E[e^v; v <= b] + e^b P(v > b) - y`` with ``v = p + w B``."""
        p, y, w = aligned(prediction, target, width)
        b = self.max_log_rate
        return self._rate_below_bound(p, w, marginal) + math.exp(b) * marginal.step(p - b, w) - self._count(y)

    def _rate_below_bound(self, p: Array, w: Array, marginal: BallMarginal) -> Array:
        """``E[e^v; v <= b]``."""

        def rate(nodes: Array) -> Array:
            return jnp.exp(jnp.minimum(p[..., None] + w[..., None] * nodes, self.max_log_rate))

        p, w = jnp.broadcast_arrays(p, w)
        return marginal.lower_mean(rate, standardized(self.max_log_rate - p, w))

    def _count(self, y: Array) -> Array:
        return jnp.clip(y, 0, self.max_count)
