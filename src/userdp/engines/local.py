"""Per-user gradients on this machine, compiled by JAX for CPU or GPU.

Users are computed one after the other inside one compiled loop, each by the same kernel on that user's own items: a
vector is bit for bit a function of its user (and of theta), whoever else is in the data. The kernel reads a
user's features once, because the second pass finds them in the cache. Small users of a linear predictor are computed
sixteen at a time, each in a lane of its own of the vector unit: every lane does the same additions in the same order.
With ``userdp[fast]`` larger users have a faster kernel (:mod:`userdp.engines.fused`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.engines import fused
from userdp.engines.groups import grouped, members, n_groups
from userdp.engines.layout import Block, LaidOut, Packed
from userdp.errors import InvalidInputError
from userdp.problems import (
    GLM,
    Item,
    LinearPredictorLoss,
    Loss,
    Multinomial,
    Regularized,
    SampledGLM,
    SampledSmoothing,
)

# A loss, or a loss smoothed by sampling, which needs a random key as well.
Objective: TypeAlias = Loss | SampledGLM | SampledSmoothing
UserGradients: TypeAlias = Callable[[Any, Array, Array], Array]
Kernel: TypeAlias = Callable[[Array, Array, Array, Array, Array], Array]


@dataclass(frozen=True)
class GradientOracle:
    """What an optimizer may ask: the users' mean gradients at theta, and the gradient of a public term.

    Attributes
    ----------
    data : pytree of arrays
        The users, an argument of :attr:`user_gradients` so that a compiled loop does not copy them.
    user_gradients : callable
        ``(data, theta, key) -> (n_users, d)``, a NaN row for a null user; traceable by JAX.
    ridge, ridge_centre : float, array
        A public (ridge/2)|theta - ridge_centre|^2, whose gradient needs no privacy; the origin by default.
    n_users, dimension : int
        Shape of an answer.
    """

    data: Any
    user_gradients: UserGradients
    ridge: float
    n_users: int
    dimension: int
    ridge_centre: FloatArray | None = None

    def evaluate(self, theta: FloatArray) -> FloatArray:
        """Return the users' gradients at one point, outside a loop; private."""
        with jax.enable_x64(True):
            gradients = jax.jit(self.user_gradients)(self.data, jnp.asarray(theta), jax.random.key(0))
            return np.asarray(gradients, dtype=np.float64)

    def norms(self, theta: FloatArray) -> FloatArray:
        """Return the norms of the users' gradients at one point; private."""
        return norms_of(self.evaluate(theta))


def norms_of(vectors: FloatArray) -> FloatArray:
    """Return each vector's norm, bit for bit a function of that vector."""
    norms: FloatArray = np.linalg.norm(vectors, axis=1)
    return norms


def local_oracle(
    loss: Objective,
    users: Users,
    *,
    dimension: int | None = None,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    group_size: int = 1,
) -> GradientOracle:
    """Lay out users in memory and return their gradient oracle.

    A ridge penalty (:class:`~userdp.problems.Regularized`) is split off: it does not depend on the data.

    Parameters
    ----------
    dimension : int, optional
        Coordinates of theta, where the loss cannot tell from the number of features.
    device : str, optional
        ``"cpu"`` or ``"gpu"``; what JAX prefers by default.
    group_size : int
        So many users that follow each other stand for one (:mod:`userdp.engines.groups`).
    """
    plain, ridge = without_ridge(loss)
    check_targets(plain, users.has_targets)
    if dimension is None:
        dimension = n_parameters(plain, users.n_features)
    on_gpu = (device or jax.default_backend()) == "gpu"
    lay_out = fused.layout_for(plain, users.n_features, dtype, on_gpu)
    with jax.enable_x64(True):  # else float64 data would be cut to float32
        laid_out = lay_out(users, min_items, dtype)
        data: Any = jax.device_put(laid_out, _device(device))
    user_gradients = gradients_of(plain, users.has_targets, on_gpu)
    if group_size > 1:
        with jax.enable_x64(True):
            data = data, jax.device_put(members(laid_out, group_size), _device(device))
        user_gradients = grouped(user_gradients)
    return GradientOracle(data, user_gradients, ridge, n_groups(users.n_users, group_size), dimension)


def _device(name: str | None) -> jax.Device | None:
    if name is None:
        return None
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        raise InvalidInputError(
            f"there is no {name} that JAX can use; on a machine with an NVIDIA card: pip install 'userdp[cuda]'"
        ) from None


@lru_cache(maxsize=64)
def gradients_of(loss: Objective, has_targets: bool, on_gpu: bool = False) -> UserGradients:
    """Return one function per loss, so that a compiled loop serves all data of one shape."""
    kernel = _kernel(loss, has_targets)

    def user_gradients(data: LaidOut, theta: Array, key: Array) -> Array:
        return jnp.concatenate([of_some(users, theta.astype(users.features.dtype), key) for users in data])

    def of_some(block: Block | Packed, theta: Array, key: Array) -> Array:
        if isinstance(block, Packed):
            assert isinstance(loss, GLM)  # only these are packed
            return fused.glm_gradients(loss, block, theta)
        if on_gpu and isinstance(loss, GLM) and len(theta) <= gpu.LONGEST_ROW:
            found = gpu.glm_gradients(loss.derivative, block, theta)
            return jnp.where(block.usable[: block.n_users, None], found, jnp.nan)
        if not on_gpu and block.lanes > 1 and isinstance(loss, LinearPredictorLoss):
            return _side_by_side(loss, block, theta)
        return _one_by_one(kernel, block, theta, key, on_gpu)

    if on_gpu:
        from userdp.engines import gpu
    return user_gradients


def n_parameters(loss: Objective, n_features: int) -> int:
    """How many coordinates theta has for rows of ``n_features`` numbers."""
    match loss:
        case Loss():
            return loss.n_parameters(n_features)
        case SampledSmoothing():
            return loss.loss.n_parameters(n_features)
    return n_features


def without_ridge(loss: Objective) -> tuple[Objective, float]:
    """Split a loss into its data-dependent part and the strength of its ridge penalties.

    Smoothing adds a constant to a ridge penalty, so that one comes out of a smoothed loss as well.
    """
    match loss:
        case Regularized():
            plain, ridge = without_ridge(loss.loss)
            return plain, ridge + loss.strength
        case SampledSmoothing(loss=Regularized() as inner):
            plain, ridge = without_ridge(SampledSmoothing(inner.loss, loss.radius))
            return plain, ridge + inner.strength
    return loss, 0.0


def check_targets(loss: Objective, has_targets: bool) -> None:
    """Refuse a loss of labelled items for rows without targets."""
    labelled = loss.loss if isinstance(loss, SampledSmoothing) else loss
    if not has_targets and isinstance(labelled, LinearPredictorLoss | SampledGLM | Multinomial):
        raise InvalidInputError(
            f"{type(labelled).__name__} needs a target for each row; give y to Users.from_rows(X, groups, y)"
        )


def _side_by_side(loss: LinearPredictorLoss, block: Block, theta: Array) -> Array:
    """Compute small users of one block, as many at a time as there are lanes; users are the last axis."""
    lanes, width, d = block.lanes, block.width, theta.shape[0]

    def one_group(group: Array, gradients: Array) -> Array:
        features, targets, weights = _items(block, group * lanes, lanes)
        x = features.reshape(lanes, width, d).transpose(1, 2, 0)
        y, w = targets.reshape(lanes, width).T, weights.reshape(lanes, width).T
        predictions = jnp.sum(x * theta[:, None], axis=1)
        slopes = loss.slopes_at(predictions, jnp.sqrt(jnp.sum(x * x, axis=1)), y)
        gradient = jnp.sum((slopes * w)[:, None] * x, axis=0).T
        return jax.lax.dynamic_update_slice_in_dim(gradients, gradient, group * lanes, 0)

    null = jnp.zeros((block.positions.shape[0], d), theta.dtype)
    gradients: Array = jax.lax.fori_loop(0, (block.count + lanes - 1) // lanes, one_group, null)
    return jnp.where(block.usable[:, None], gradients, jnp.nan)[: block.n_users]


def _items(block: Block, first: Array, n_users: int) -> tuple[Array, ...]:
    """Features, targets and weights of neighbouring users of a block."""
    return tuple(
        jax.lax.dynamic_slice_in_dim(rows, first * block.width, n_users * block.width)
        for rows in (block.features, block.targets, block.weights)
    )


def _one_by_one(kernel: Kernel, block: Block, theta: Array, key: Array, on_gpu: bool) -> Array:
    """Compute the users of one block, one after the other, by a loop that is compiled without their number.

    A GPU computes a fixed number of users at a time instead.
    """

    def one_user(place: Array) -> Array:
        features, targets, weights = _items(block, place, 1)
        user_key = jax.random.fold_in(key, block.positions[place])
        return kernel(theta, features, targets, weights, user_key)

    null = jnp.full((block.positions.shape[0], theta.shape[0]), jnp.nan, theta.dtype)
    if on_gpu:
        from userdp.engines.gpu import batched_gradients

        gradients = batched_gradients(one_user, block.n_users, block.count, null)
    else:
        gradients = jax.lax.fori_loop(
            0,
            block.count,
            lambda place, found: jax.lax.dynamic_update_index_in_dim(found, one_user(place), place, 0),
            null,
        )
    return jnp.where(block.usable[:, None], gradients, jnp.nan)[: block.n_users]


def _kernel(loss: Objective, has_targets: bool) -> Kernel:
    """Return ``(theta, features, targets, weights, key) -> sum_k weights_k grad l(theta; item_k)``."""

    def items(x: Array, y: Array) -> Item:
        return (x, y) if has_targets else x

    match loss:
        case LinearPredictorLoss():
            return lambda theta, x, y, weights, key: (loss.slopes(theta, x, y) * weights) @ x
        case SampledGLM():
            return lambda theta, x, y, weights, key: (loss.slopes(theta, x, y, key) * weights) @ x
        case Multinomial():
            # Class by class: a product of two matrices would be summed in an order that depends on the threads.
            return lambda theta, x, y, weights, key: jax.lax.map(
                lambda residuals: (residuals * weights) @ x, loss.residuals(theta, x, _classes(y)).T
            ).ravel()
        case SampledSmoothing():
            return lambda theta, x, y, weights, key: _weighted_sum(
                lambda item, k: loss.item_gradient(theta, item, jax.random.fold_in(key, k)),
                items(x, y),
                weights,
                theta,
            )
        case Loss():
            return lambda theta, x, y, weights, key: _weighted_sum(
                lambda item, k: loss.item_gradient(theta, item), items(x, y), weights, theta
            )
    raise InvalidInputError(
        f"loss must be a userdp.problems.Loss, got {type(loss).__name__}; wrap a JAX function in JaxLoss"
    )


def _classes(targets: Array) -> Array:
    """Targets as class numbers; what is not a whole number is none of the classes."""
    return jnp.where(targets == jnp.rint(targets), targets, -1.0).astype(jnp.int32)


# Items are taken so many numbers at a time: XLA leaves arrays of this size to one thread.
_CHUNK = 2**13


def _weighted_sum(
    item_gradient: Callable[[Item, Array], Array], items: Item, weights: Array, theta: Array
) -> Array:
    """Return ``sum_k weights_k item_gradient(item_k, k)`` without an (m, d) array of gradients.

    A larger array would be cut among the threads, and then the last bits of a user's gradient depend on how many
    there are.
    """
    m = weights.shape[0]
    size = min(m, max(1, _CHUNK // theta.shape[0]))

    def add(total: Array, first: Array | int, length: int) -> Array:
        chunk, part = jax.tree.map(
            lambda rows: jax.lax.dynamic_slice_in_dim(rows, first, length), (items, weights)
        )
        gradients = jax.vmap(item_gradient)(chunk, first + jnp.arange(length))
        # A padded item may have a gradient that is not finite; it is left out, not multiplied.
        kept = jnp.where(part[:, None] > 0, gradients * part[:, None], 0.0)
        return total + jnp.sum(kept, axis=0)

    total = jax.lax.fori_loop(
        0, m // size, lambda i, total: add(total, i * size, size), jnp.zeros_like(theta)
    )
    return add(total, m - m % size, m % size) if m % size else total
