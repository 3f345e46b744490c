"""Losses of a vector item z of the shape of theta: linear functions, means and geometric medians."""

import math
from dataclasses import dataclass
from typing import final

import jax.numpy as jnp
from jax import Array

from userdp.problems._checks import nonnegative
from userdp.problems.loss import Constants, Item, Loss

__all__ = ["Distance", "Linear", "SquaredDistance"]


@final
@dataclass(frozen=True)
class Linear(Loss):
    """``<z, theta>``: Lipschitz B for |z| <= B, smooth 0. Minimised on a bounded domain only."""

    def item_value(self, theta: Array, item: Item) -> Array:
        """``<z, theta>``."""
        return jnp.vdot(item, theta)

    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``z``."""
        return jnp.asarray(item, theta.dtype)

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """``(B, 0, 0)``."""
        return Constants(nonnegative("feature_bound", feature_bound, "declare a bound on |z|"), 0.0, 0.0)


@final
@dataclass(frozen=True)
class Distance(Loss):
    """``|theta - z|``: its minimiser is the geometric median.

    Gradient ``(theta - z)/|theta - z|``, 0 at the kink theta = z; Lipschitz 1, attained; not smooth.
    """

    def item_value(self, theta: Array, item: Item) -> Array:
        """``|theta - z|``."""
        distance: Array = jnp.linalg.norm(theta - item)
        return distance

    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``(theta - z)/|theta - z|``."""
        difference: Array = theta - item
        length = jnp.linalg.norm(difference)
        return difference / jnp.where(length > 0, length, 1)

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """``(1, inf, 0)``, for items of any size."""
        return Constants(1.0, math.inf, 0.0)


@final
@dataclass(frozen=True)
class SquaredDistance(Loss):
    """``|theta - z|^2 / 2``: its minimiser is the mean; smooth 1 and strongly convex 1."""

    def item_value(self, theta: Array, item: Item) -> Array:
        """``|theta - z|^2 / 2``."""
        return 0.5 * jnp.vdot(theta - item, theta - item)

    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``theta - z``."""
        difference: Array = theta - item
        return difference

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """``(|theta| + B, 1, 1)``."""
        B = nonnegative("feature_bound", feature_bound, "declare a bound on |z|")
        R = nonnegative("theta_bound", theta_bound, "declare a bound on |theta|")
        return Constants(R + B, 1.0, 1.0)
