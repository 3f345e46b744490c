"""Friend counts on a GPU: exact, by products of bytes on its tensor cores.

A coordinate u with |u| <= 127 * 256 is split as u = 256 a + b into two signed bytes, and

    <u, v> = 65536 <a, a'> + 256 (<a, b'> + <b, a'>) + <b, b'>,

where every product on the right is an exact sum in int32 (at most d 2^14 <= 2^31). The distance is compared in float64,
which holds all of these integers. No n x n matrix is ever written: a program counts the friends of a few rows while
it goes through the columns.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

# Coordinates up to this size are two signed bytes.
LARGEST = 127 * 256
# A row must fit the registers of a program.
LONGEST_ROW = 256
_ROWS, _COLUMNS = 128, 128


def counts_on_gpu(offsets: Array, present: Array, R: float) -> Array:
    """Count every user's friends: by bytes among users whose coordinates fit, by differences with the others."""
    n, size = len(present), 8
    fits = present & (jnp.max(jnp.abs(offsets), axis=1) <= LARGEST)
    others = present & ~fits
    places = jnp.nonzero(others, size=n + -n % size, fill_value=n)[0]

    def of_block(i: Array, counts: Array) -> Array:
        block = jax.lax.dynamic_slice_in_dim(places, i * size, size)
        rows = offsets.at[block].get(mode="fill", fill_value=0.0)
        real = (block < n)[:, None]
        squares = jnp.sum((rows[:, None, :] - offsets[None]) ** 2, axis=2)
        close = (squares <= R * R) & present & real
        counts = counts + jnp.sum(close & fits, axis=0)
        return counts.at[block].set(jnp.sum(close, axis=1), mode="drop")

    blocks = (jnp.sum(others) + size - 1) // size
    counts: Array = jax.lax.fori_loop(0, blocks, of_block, byte_counts(offsets, fits, R))
    return counts


def byte_counts(offsets: Array, present: Array, R: float) -> Array:
    """Count the friends of every present row among the present rows; the others count 0.

    ``offsets`` are integers of size at most :data:`LARGEST` wherever ``present``.
    """
    n, d = offsets.shape
    room, width = -(-n // _ROWS) * _ROWS, max(32, 1 << (d - 1).bit_length())
    units = jnp.where(present[:, None], offsets, 0.0)
    low = jnp.mod(units + 128, 256) - 128
    high = (units - low) / 256
    grow = ((0, room - n), (0, width - d))
    bytes_ = [jnp.pad(part, grow).astype(jnp.int8) for part in (high, low)]
    # Half of |u|^2; a row that is not there is infinitely far from all.
    half = jnp.pad(
        jnp.where(present, jnp.sum(units**2, axis=1) / 2, jnp.inf), (0, room - n), constant_values=jnp.inf
    )
    counts: Array = pl.pallas_call(
        partial(_rows, n_blocks=room // _COLUMNS, width=width, limit=R * R / 2),
        grid=(room // _ROWS,),
        out_shape=jax.ShapeDtypeStruct((room,), jnp.int32),  # type: ignore[no-untyped-call]
        compiler_params=plgpu.CompilerParams(num_warps=8, num_stages=2),
    )(*bytes_, half)
    return jnp.where(present, counts[:n], 0).astype(jnp.int64)


def _rows(
    high_ref: Any, low_ref: Any, half_ref: Any, out_ref: Any, *, n_blocks: int, width: int, limit: float
) -> None:
    first = pl.program_id(0) * _ROWS
    mine = pl.ds(first, _ROWS)
    every = pl.ds(0, width)
    a, b = plgpu.load(high_ref.at[mine, every]), plgpu.load(low_ref.at[mine, every])
    half = plgpu.load(half_ref.at[mine])

    def block(i: Array, counts: Array) -> Array:
        there = pl.ds(i * _COLUMNS, _COLUMNS)
        c, e = plgpu.load(high_ref.at[there, every]), plgpu.load(low_ref.at[there, every])
        other = plgpu.load(half_ref.at[there])
        middle = _product(a, e) + _product(b, c)
        gram = (
            _product(a, c).astype(jnp.float64) * 65536.0
            + middle.astype(jnp.float64) * 256.0
            + _product(b, e).astype(jnp.float64)
        )
        # |u - v|^2 / 2 <= R^2 / 2
        close = half[:, None] + other[None, :] - gram <= limit
        return counts + jnp.sum(close.astype(jnp.int32), axis=1, dtype=jnp.int32)

    counts = jax.lax.fori_loop(0, n_blocks, block, jnp.zeros(_ROWS, jnp.int32))
    plgpu.store(out_ref.at[mine], counts)


def _product(rows: Array, columns: Array) -> Array:
    product: Array = jax.lax.dot_general(
        rows, columns, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32
    )
    return product
