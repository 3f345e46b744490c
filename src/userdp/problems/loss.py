"""What a loss is: a convex function of theta for one item, its gradient, and its declared constants."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp
from jax import Array

from userdp.errors import InvalidInputError
from userdp.problems._checks import nonnegative, positive, settle

__all__ = ["Constants", "Item", "JaxLoss", "Loss", "Regularized"]

Item: TypeAlias = Any
"""One item of a user: any JAX pytree of arrays. Losses on labelled data take the pair ``(x, y)``."""


@final
@dataclass(frozen=True)
class Constants:
    """Constants of ``theta -> l(theta; z)`` that hold for every admissible item z.

    Parameters
    ----------
    lipschitz : float
        G with ``|l(a) - l(b)| <= G |a - b|``; infinite where there is none.
    smoothness : float
        beta with ``|grad l(a) - grad l(b)| <= beta |a - b|``; infinite where the gradient jumps.
    strong_convexity : float
        mu such that ``l - (mu/2)|theta|^2`` is convex; 0 where l is merely convex.
    """

    lipschitz: float
    smoothness: float
    strong_convexity: float

    def __post_init__(self) -> None:
        for name in ("lipschitz", "smoothness", "strong_convexity"):
            bound = nonnegative(name, getattr(self, name), "declare a bound that holds for every item")
            settle(self, **{name: bound})
        if self.strong_convexity > self.smoothness:
            raise InvalidInputError(
                f"strong_convexity must not exceed smoothness, got {self.strong_convexity!r} > "
                f"{self.smoothness!r}; raise smoothness or lower strong_convexity."
            )


class Loss(ABC):
    """A loss l(theta; z), convex in ``theta`` (a vector of R^d) for every item z.

    Implementations are immutable and hashable, so that a loss can be a static argument of ``jax.jit``.
    """

    @abstractmethod
    def item_value(self, theta: Array, item: Item) -> Array:
        """``l(theta; z)``, a scalar."""

    @abstractmethod
    def item_gradient(self, theta: Array, item: Item) -> Array:
        """Return one fixed subgradient of ``theta -> l(theta; z)``, of the shape of ``theta``."""

    @abstractmethod
    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """Constants that hold for all items of norm <= ``feature_bound`` and all |theta| <= ``theta_bound``.

        Both bounds are public declarations. Left infinite, a constant that depends on them is infinite.
        """

    def n_parameters(self, n_features: int) -> int:
        """How many coordinates theta has for items of ``n_features`` features."""
        return n_features

    @final
    def per_item_values(self, theta: Array, items: Item) -> Array:
        """``l(theta; z_k)`` for items stacked along their leading axis, shape ``(m,)``."""
        values: Array = jax.vmap(self.item_value, in_axes=(None, 0))(theta, items)
        return values

    @final
    def per_item_gradients(self, theta: Array, items: Item) -> Array:
        """``grad l(theta; z_k)`` for items stacked along their leading axis, shape ``(m, d)``."""
        gradients: Array = jax.vmap(self.item_gradient, in_axes=(None, 0))(theta, items)
        return gradients


@final
@dataclass(frozen=True)
class JaxLoss(Loss):
    """Any convex function written in JAX; differentiated and vectorised by the library.

    Convexity and the constants are the caller's word: nothing here can check them.

    Parameters
    ----------
    function : callable
        ``function(theta, item) -> scalar``, traceable by JAX.
    lipschitz, smoothness, strong_convexity : float
        Constants of ``theta -> function(theta, item)`` over all admissible items.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> loss = JaxLoss(lambda theta, z: jnp.logaddexp(0.0, theta @ z), lipschitz=1.0)
    >>> loss.per_item_gradients(jnp.zeros(2), jnp.eye(2)).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """

    function: Callable[[Array, Item], Array]
    lipschitz: float = math.inf
    smoothness: float = math.inf
    strong_convexity: float = 0.0

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidInputError(
                f"function must be callable as function(theta, item), got {type(self.function).__name__}; "
                "pass a JAX function that returns a scalar."
            )
        self.constants()

    def item_value(self, theta: Array, item: Item) -> Array:
        """``function(theta, item)``."""
        value = jnp.asarray(self.function(theta, item))
        if value.shape != ():
            raise InvalidInputError(
                f"function(theta, item) must return a scalar, got shape {value.shape}; "
                "return the loss of one item, the library averages over items."
            )
        return value

    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``jax.grad(function)(theta, item)``; at a kink, the subgradient that JAX picks."""
        gradient: Array = jax.grad(self.item_value)(theta, item)
        return gradient

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """Return the declared constants, whatever the bounds."""
        return Constants(self.lipschitz, self.smoothness, self.strong_convexity)


@final
@dataclass(frozen=True)
class Regularized(Loss):
    """Ridge: ``l(theta; z) + (mu/2) |theta|^2``, which makes any convex loss mu-strongly convex.

    The penalty does not depend on the data: a private method may add ``strength * theta`` to the
    private mean of the gradients of ``loss``, at no cost in privacy or in concentration.

    Parameters
    ----------
    loss : Loss
        What is regularised. Smooth first, regularise after: ``Regularized(SmoothedGLM(...), strength)``.
    strength : float
        mu > 0.
    """

    loss: Loss
    strength: float

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidInputError(
                f"loss must be a userdp.problems.Loss, got {type(self.loss).__name__}; "
                "wrap a plain function in JaxLoss."
            )
        mu = positive("strength", self.strength, "use the loss itself where no penalty is wanted")
        settle(self, strength=mu)

    def n_parameters(self, n_features: int) -> int:
        """As many as the loss inside."""
        return self.loss.n_parameters(n_features)

    def item_value(self, theta: Array, item: Item) -> Array:
        """``l(theta; z) + (mu/2) |theta|^2``."""
        return self.loss.item_value(theta, item) + 0.5 * self.strength * jnp.vdot(theta, theta)

    def item_gradient(self, theta: Array, item: Item) -> Array:
        """``grad l(theta; z) + mu theta``."""
        return self.loss.item_gradient(theta, item) + self.strength * theta

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """``(G + mu |theta|, beta + mu, mu_l + mu)``; Lipschitz only where ``theta_bound`` is finite."""
        inner = self.loss.constants(feature_bound, theta_bound)
        return Constants(
            lipschitz=inner.lipschitz + self.strength * theta_bound,
            smoothness=inner.smoothness + self.strength,
            strong_convexity=inner.strong_convexity + self.strength,
        )
