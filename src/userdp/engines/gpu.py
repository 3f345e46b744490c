"""Per-user gradients on a GPU: one program a user, which reads that user's features once.

A program takes a few rows at a time: predictions, slopes and the sum of slope times row while the rows are in
registers. Users are computed apart from each other and each in one order, so here, too, a vector is bit for bit a
function of its user; it differs from the CPU's in the last bits, because the order of summation does.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from userdp.engines.cpu import Kernel, Objective
from userdp.engines.layout import Block
from userdp.problems import GLM

# Numbers of a tile of rows that one warp holds in registers, and the longest row for which there is a tile.
_TILE = 1024
LONGEST_ROW = 512
# Losses without a kernel of their own are computed for so many users at a time.
_USERS_AT_ONCE = 1024


def gradients(loss: Objective, kernel: Kernel, block: Block, theta: Array, key: Array) -> Array:
    """Return every user's gradient, by a program for each user where the loss and the rows' length allow."""
    if isinstance(loss, GLM) and len(theta) <= LONGEST_ROW:
        return glm_gradients(loss.derivative, block, theta)

    def one_user(place: Array) -> Array:
        x, y, weights = (
            jax.lax.dynamic_slice_in_dim(rows, place * block.width, block.width)
            for rows in (block.features, block.targets, block.weights)
        )
        return kernel(theta, x, y, weights, jax.random.fold_in(key, block.positions[place]), 0)

    null = jnp.full((block.positions.shape[0], theta.shape[0]), jnp.nan, theta.dtype)
    return batched_gradients(one_user, block.n_users, block.count, null)[: block.n_users]


def glm_gradients(derivative: Callable[[Array, Array], Array], block: Block, theta: Array) -> Array:
    """Return every user's weighted sum of ``derivative(<x, theta>, y) x``, shape ``(n_users, d)``."""
    d, width = theta.shape[0], block.width
    columns = _power_of_two(d)
    rows = min(_power_of_two(width), max(1, _TILE // columns))
    kernel = partial(_user, derivative=derivative, width=width, d=d, rows=rows, columns=columns)
    gradients: Array = pl.pallas_call(
        kernel,
        grid=(block.n_users,),
        out_shape=jax.ShapeDtypeStruct((block.n_users, d), theta.dtype),  # type: ignore[no-untyped-call]
        compiler_params=plgpu.CompilerParams(num_warps=1, num_stages=2),
    )(theta, block.features, block.targets, block.weights)
    return gradients


def _user(
    theta_ref: Any,
    features_ref: Any,
    targets_ref: Any,
    weights_ref: Any,
    out_ref: Any,
    *,
    derivative: Callable[[Array, Array], Array],
    width: int,
    d: int,
    rows: int,
    columns: int,
) -> None:
    user = pl.program_id(0).astype(jnp.int64)  # features may be more than 2^31 numbers
    column = jnp.arange(columns, dtype=jnp.int32)
    in_row = column < d
    theta = plgpu.load(theta_ref.at[column], mask=in_row, other=0.0)

    def tile(i: Array, total: Array) -> Array:
        place = i * rows + jnp.arange(rows, dtype=jnp.int32)
        mine = place < width
        at = user * width + place
        both = mine[:, None] & in_row[None, :]
        x = plgpu.load(features_ref.at[at[:, None], column[None, :]], mask=both, other=0.0)
        y = plgpu.load(targets_ref.at[at], mask=mine, other=0.0)
        weight = plgpu.load(weights_ref.at[at], mask=mine, other=0.0)
        slopes = derivative(jnp.sum(x * theta[None, :], axis=1), y) * weight
        return total + jnp.sum(slopes[:, None] * x, axis=0)

    tiles = -(-width // rows)
    total = jax.lax.fori_loop(0, tiles, tile, jnp.zeros(columns, theta.dtype))
    plgpu.store(out_ref.at[user, column], total, mask=in_row)


def batched_gradients(one_user: Callable[[Array], Array], n_users: int, count: Array, null: Array) -> Array:
    """Compute users by ``one_user(place)``, a fixed number at a time."""
    size = _USERS_AT_ONCE

    def batch(i: Array, gradients: Array) -> Array:
        places = i * size + jnp.arange(size)
        found = jax.vmap(one_user)(jnp.minimum(places, n_users))
        return gradients.at[places].set(found, mode="drop")

    gradients: Array = jax.lax.fori_loop(0, (count + size - 1) // size, batch, null)
    return gradients


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
