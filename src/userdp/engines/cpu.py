"""Per-user gradients on a CPU by XLA's own kernels.

Large users are computed one after the other inside one compiled loop, some rows at a time, which the second pass finds
in the cache. Small users of a linear predictor are computed sixteen at a time, each in a lane of its own of the vector
unit: every lane does the same additions in the same order. The loops know neither how many users nor how many items
there are, so little is compiled, and none of it again for other data of about the same size.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.engines.layout import LANES, Packed, SideBySide, rows_at_once
from userdp.errors import InvalidInputError
from userdp.problems import Item, LinearPredictorLoss, Loss, Multinomial, SampledGLM, SampledSmoothing

# A loss, or a loss smoothed by sampling, which needs a random key as well.
Objective: TypeAlias = Loss | SampledGLM | SampledSmoothing
# (theta, features, targets, weights, key, first) -> sum_k weights_k grad l(theta; item_k); first is the first item's k.
Kernel: TypeAlias = Callable[[Array, Array, Array, Array, Array, Array | int], Array]

# Large data are cut into loops of at least so many numbers, which XLA hands to its threads.
_PIECE = 2**22
_MOST_PIECES = 8


def side_by_side(loss: LinearPredictorLoss, users: SideBySide, theta: Array) -> Array:
    """Return the gradients of small users, as many at a time as there are lanes."""
    d, n_groups = theta.shape[0], users.starts.shape[0] - 1

    def of_groups(first: int, last: int) -> Array:
        def add(group: Array, gradients: Array) -> Array:
            found = one_group(users.starts[group], users.starts[group + 1])
            more: Array = jax.lax.dynamic_update_index_in_dim(gradients, found.T, group - first, 0)
            return more

        null = jnp.zeros((last - first, LANES, d), theta.dtype)
        gradients: Array = jax.lax.fori_loop(first, jnp.minimum(last, users.count), add, null)
        return gradients.reshape(-1, d)

    def one_group(start: Array, end: Array) -> Array:
        def add(slab: Array, total: Array) -> Array:
            x, y, w = (numbers[slab] for numbers in (users.features, users.targets, users.weights))
            predictions = jnp.sum(x * theta[:, None], axis=0)
            slopes = loss.slopes_at(predictions, jnp.sqrt(jnp.sum(x * x, axis=0)), y)
            more: Array = total + _weighted(slopes, w) * x
            return more

        total: Array = jax.lax.fori_loop(start, end, add, jnp.zeros((d, LANES), theta.dtype))
        return total

    gradients: Array = jnp.concatenate([of_groups(*cut) for cut in _cuts(n_groups, users.features.size)])
    return gradients[: users.n_users]


def one_by_one(kernel: Kernel, users: Packed, theta: Array, key: Array) -> Array:
    """Return the gradients of users, one after the other."""
    many = rows_at_once(max(users.features.shape[1], theta.shape[0]))
    few = max(1, many // 8)

    def of_users(first: int, last: int) -> Array:
        def add(user: Array, gradients: Array) -> Array:
            gradient = one_user(users.offsets[user], users.offsets[user + 1], users.positions[user])
            more: Array = jax.lax.dynamic_update_index_in_dim(gradients, gradient, user - first, 0)
            return more

        null = jnp.full((last - first, theta.shape[0]), jnp.nan, theta.dtype)
        gradients: Array = jax.lax.fori_loop(first, jnp.minimum(last, users.count), add, null)
        return gradients

    def one_user(start: Array, end: Array, position: Array) -> Array:
        user_key = jax.random.fold_in(key, position)

        def add(total: Array, first: Array, size: int) -> Array:
            mine = first + jnp.arange(size) < end
            x, y, w = (
                jax.lax.dynamic_slice_in_dim(rows, first, size)
                for rows in (users.features, users.targets, users.weights)
            )
            x, y, w = jnp.where(mine[:, None], x, 0), jnp.where(mine, y, 0), jnp.where(mine, w, 0)
            return total + kernel(theta, x, y, w, user_key, first - start)

        whole, zero = (end - start) // many, jnp.zeros_like(theta)
        total = jax.lax.fori_loop(0, whole, lambda k, total: add(total, start + k * many, many), zero)
        rest = start + whole * many
        left = (end - rest + few - 1) // few
        gradient: Array = jax.lax.fori_loop(0, left, lambda k, total: add(total, rest + k * few, few), total)
        return gradient

    return jnp.concatenate([of_users(*cut) for cut in _cuts(users.n_users, users.features.size)])


def _cuts(count: int, numbers: int) -> list[tuple[int, int]]:
    """Cut a range into one or more."""
    pieces = max(1, min(_MOST_PIECES, count, numbers // _PIECE))
    return list(pairwise(np.linspace(0, count, pieces + 1).astype(int).tolist()))


def kernel_of(loss: Objective, has_targets: bool) -> Kernel:
    """Return what adds up the gradients of some of a user's items; those of weight 0 add nothing."""

    def items(x: Array, y: Array) -> Item:
        return (x, y) if has_targets else x

    match loss:
        case LinearPredictorLoss():
            return lambda theta, x, y, weights, key, first: _weighted(loss.slopes(theta, x, y), weights) @ x
        case SampledGLM():
            return lambda theta, x, y, weights, key, first: (
                _weighted(loss.slopes(theta, x, y, key, first), weights) @ x
            )
        case Multinomial():
            # Class by class: a product of two matrices would be summed in an order that depends on the threads.
            return lambda theta, x, y, weights, key, first: jax.lax.map(
                lambda residuals: _weighted(residuals, weights) @ x,
                loss.residuals(theta, x, _classes(y)).T,
            ).ravel()
        case SampledSmoothing():
            return lambda theta, x, y, weights, key, first: _sum(
                lambda item, k: loss.item_gradient(theta, item, jax.random.fold_in(key, first + k)),
                items(x, y),
                weights,
            )
        case Loss():
            return lambda theta, x, y, weights, key, first: _sum(
                lambda item, k: loss.item_gradient(theta, item), items(x, y), weights
            )
    raise InvalidInputError(
        f"loss must be a userdp.problems.Loss, got {type(loss).__name__}; wrap a JAX function in JaxLoss"
    )


def _classes(targets: Array) -> Array:
    """Targets as class numbers; what is not a whole number is none of the classes."""
    return jnp.where(targets == jnp.rint(targets), targets, -1.0).astype(jnp.int32)


def _weighted(slopes: Array, weights: Array) -> Array:
    """Slopes times weights; what pads a user may have a slope that is not finite, and is left out."""
    return jnp.where(weights > 0, slopes * weights, 0.0)


def _sum(item_gradient: Callable[[Item, Array], Array], items: Item, weights: Array) -> Array:
    """Return ``sum_k weights_k item_gradient(item_k, k)``."""
    gradients = jax.vmap(item_gradient)(items, jnp.arange(weights.shape[0]))
    kept = jnp.where(weights[:, None] > 0, gradients * weights[:, None], 0.0)
    return jnp.sum(kept, axis=0)
