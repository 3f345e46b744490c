r"""Randomized smoothing: l^(theta; z) = E l(theta + r y; z), y uniform in the unit ball of R^d.

For a convex, G-Lipschitz loss l on R^d, the smoothed loss is

* convex and G-Lipschitz;
* close: ``l <= l^ <= l + G r d/(d + 1)``, so ``|l^ - l| <= G r``;
* smooth: its gradient is ``(2 C_d G/r)``-Lipschitz, where ``2 C_d <= sqrt(d)``.

Along a linear predictor the expectation is one-dimensional: ``<x, r y> = |x| r B`` with
``(B + 1)/2 ~ Beta((d+1)/2, (d+1)/2)``. So a GLM is smoothed exactly (`SmoothedGLM`), or by one random
scalar per item (`SampledGLM`); any other loss is smoothed by one random vector per item
(`SampledSmoothing`).

The randomness of the sampled forms must be independent of the data, and one user's number of items must
not shift another user's stream: derive one key per user, ``jax.random.fold_in(key, user)``. Within a user,
item k draws from ``fold_in(user_key, k)`` alone. Proofs: ``docs/proofs/smoothing.md``.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import jax
import jax.numpy as jnp
from jax import Array

from userdp.errors import InvalidInputError
from userdp.problems._checks import count, positive, settle
from userdp.problems.ball import BallMarginal, sample_ball
from userdp.problems.glm import GLM, LinearPredictorLoss, linear_predictions
from userdp.problems.loss import Constants, Item, Loss

__all__ = ["SampledGLM", "SampledSmoothing", "SmoothedGLM", "smoothed_constants"]

_RADIUS_REMEDY = "use the loss itself where no smoothing is wanted"
_DIMENSION_REMEDY = "pass the number of coordinates of theta"


def smoothed_constants(constants: Constants, radius: float, dimension: int) -> Constants:
    """Return the constants of the smoothed loss: ``(G, min(beta, 2 C_d G/r), mu)``."""
    r = positive("radius", radius, _RADIUS_REMEDY)
    bound = 2 * BallMarginal(dimension).peak * constants.lipschitz / r
    return Constants(
        lipschitz=constants.lipschitz,
        smoothness=min(constants.smoothness, bound),
        strong_convexity=constants.strong_convexity,
    )


@final
@dataclass(frozen=True)
class SmoothedGLM(LinearPredictorLoss):
    """A GLM smoothed over the ball of radius r, with its expectation in closed form or by quadrature.

    ``l^(theta; x, y) = E phi(<x, theta> + |x| r B, y)`` and its slope ``E phi'(<x, theta> + |x| r B, y)``:
    no sampling, no variance. The GLM states its own formulas in ``smoothed_value`` and
    ``smoothed_derivative``.

    Parameters
    ----------
    loss : GLM
        The loss to smooth.
    radius : float
        r > 0, in the units of theta.
    dimension : int
        d, the number of coordinates of theta.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from userdp.problems import Hinge
    >>> smooth = SmoothedGLM(Hinge(), radius=0.5, dimension=2)
    >>> theta, x = jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0])
    >>> float(smooth.slopes(theta, x, 1))
    -0.5
    """

    loss: GLM
    radius: float
    dimension: int

    def __post_init__(self) -> None:
        _require_glm(self.loss)
        settle(
            self,
            radius=positive("radius", self.radius, _RADIUS_REMEDY),
            dimension=count("dimension", self.dimension, 1, _DIMENSION_REMEDY),
        )

    @cached_property
    def marginal(self) -> BallMarginal:
        """The law of B."""
        return BallMarginal(self.dimension)

    def values(self, theta: Array, features: Array, targets: Array) -> Array:
        """``E phi(<x, theta> + |x| r B, y)``."""
        prediction, width = _along(self.radius, self.dimension, theta, features)
        return self.loss.smoothed_value(prediction, targets, width, self.marginal)

    def slopes_at(self, predictions: Array, norms: Array, targets: Array) -> Array:
        """``E phi'(<x, theta> + |x| r B, y)``."""
        return self.loss.smoothed_derivative(predictions, targets, self.radius * norms, self.marginal)

    def slopes(self, theta: Array, features: Array, targets: Array) -> Array:
        """Return the derivatives with respect to ``<x, theta>``, shape ``(...)``."""
        _require_dimension(self.dimension, theta)
        return super().slopes(theta, features, targets)

    def constants(self, feature_bound: float = math.inf, theta_bound: float = math.inf) -> Constants:
        """``(G, min(beta, 2 C_d G/r), 0)`` with G, beta those of the loss."""
        return smoothed_constants(
            self.loss.constants(feature_bound, theta_bound), self.radius, self.dimension
        )

    def approximation_error(self, feature_bound: float) -> float:
        """Bound on ``l^ - l``: ``G r E|B|``, about ``0.8 G r/sqrt(d)``; l^ is never below l."""
        return self.constants(feature_bound).lipschitz * self.radius * self.marginal.mean_size


@final
@dataclass(frozen=True)
class SampledGLM:
    """Unbiased slopes of a smoothed GLM from one random scalar B_k per item.

    ``phi'(<x, theta> + |x| r B_k, y)`` has the law of the slope at ``theta + r y_k``, at the price of one
    draw per item instead of d.

    Parameters
    ----------
    loss : GLM
        The loss to smooth.
    radius : float
        r > 0, in the units of theta.
    dimension : int
        d, the number of coordinates of theta.
    """

    loss: GLM
    radius: float
    dimension: int

    def __post_init__(self) -> None:
        _require_glm(self.loss)
        settle(
            self,
            radius=positive("radius", self.radius, _RADIUS_REMEDY),
            dimension=count("dimension", self.dimension, 1, _DIMENSION_REMEDY),
        )

    def slopes(
        self, theta: Array, features: Array, targets: Array, key: Array, first: Array | int = 0
    ) -> Array:
        """Slopes of items first, first + 1, ... of one user, features ``(m, d)``; item k uses ``fold_in(key, k)``."""
        prediction, width = _along(self.radius, self.dimension, theta, features)
        marginal = BallMarginal(self.dimension)

        def draw(item_key: Array) -> Array:
            return marginal.sample(item_key, (), theta.dtype)

        B: Array = jax.vmap(draw)(_item_keys(key, features.shape[0], first))
        return self.loss.derivative(prediction + width * B, targets)


@final
@dataclass(frozen=True)
class SampledSmoothing:
    """Unbiased gradients of any smoothed loss: the gradient at ``theta + r y_k``, one y_k per item.

    Parameters
    ----------
    loss : Loss
        The loss to smooth.
    radius : float
        r > 0, in the units of theta.
    """

    loss: Loss
    radius: float

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidInputError(
                f"loss must be a userdp.problems.Loss, got {type(self.loss).__name__}; "
                "wrap a plain function in JaxLoss."
            )
        settle(self, radius=positive("radius", self.radius, _RADIUS_REMEDY))

    def item_value(self, theta: Array, item: Item, key: Array) -> Array:
        """``l(theta + r y; z)``, y drawn from ``key``."""
        return self.loss.item_value(self._moved(theta, key), item)

    def item_gradient(self, theta: Array, item: Item, key: Array) -> Array:
        """``grad l(theta + r y; z)``, y drawn from ``key``; its expectation is ``grad l^(theta; z)``."""
        return self.loss.item_gradient(self._moved(theta, key), item)

    def per_item_gradients(self, theta: Array, items: Item, key: Array) -> Array:
        """Gradients of one user's stacked items, shape ``(m, d)``; item k uses ``fold_in(key, k)``."""
        keys = _item_keys(key, jax.tree.leaves(items)[0].shape[0])
        gradients: Array = jax.vmap(self.item_gradient, in_axes=(None, 0, 0))(theta, items, keys)
        return gradients

    def _moved(self, theta: Array, key: Array) -> Array:
        return theta + sample_ball(key, theta.shape[0], self.radius, theta.dtype)


def _along(radius: float, dimension: int, theta: Array, features: Array) -> tuple[Array, Array]:
    """``<x, theta>`` and ``|x| r``."""
    _require_dimension(dimension, theta)
    return linear_predictions(theta, features), radius * jnp.linalg.norm(features, axis=-1)


def _require_dimension(dimension: int, theta: Array) -> None:
    if theta.shape != (dimension,):
        raise InvalidInputError(
            f"theta must have shape ({dimension},), the declared dimension, got {theta.shape}; "
            "build the smoothed loss with dimension = number of coordinates of theta."
        )


def _item_keys(key: Array, items: int, first: Array | int = 0) -> Array:
    # fold_in, not split: item k's draw must not depend on how many items there are.
    keys: Array = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, first + jnp.arange(items))
    return keys


def _require_glm(loss: GLM) -> None:
    if not isinstance(loss, GLM):
        raise InvalidInputError(
            f"loss must be a userdp.problems.GLM, got {type(loss).__name__}; "
            "use SampledSmoothing for a loss that is not a function of <x, theta>."
        )
