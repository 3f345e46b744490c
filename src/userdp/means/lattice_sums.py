"""Lattice vectors and their integer sums, compiled: the same integers in any order and for any number of users.

Every number here is either an elementwise function of one user's vector, correctly rounded, or an integer that its type
holds exactly. So neither the compiler's order of summation nor the way users are spread over machines can show.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from userdp.means.in_loop import in_steps
from userdp.means.lattice import COORDINATE_LIMIT, Lattice


def round_to_lattice(vectors: Array, lattice: Lattice) -> Array:
    """Compute :meth:`Lattice.round`."""
    units = jnp.rint(in_steps(vectors.astype(jnp.float64), lattice.step))
    usable = (jnp.abs(units) <= COORDINATE_LIMIT).all(axis=1, keepdims=True)
    return jnp.where(usable, units, jnp.nan)


def weighted_total(units: Array, weights: Array, origin: Array, lattice: Lattice, largest: int) -> Array:
    """Return sum_j w_j (u_j - origin) in int64, by partial sums that float64 holds exactly.

    Rows of positive weight must lie within two radii of the origin; weights are at most ``largest``.
    """
    n, d = units.shape
    offsets = jnp.where(weights[:, None] > 0, units - origin, 0.0)
    rows = min(n, 2**53 // (largest * 2 * lattice.radius_units))
    padding = -n % rows
    parts = jnp.pad(offsets, ((0, padding), (0, 0))).reshape(-1, rows, d)
    part_weights = jnp.pad(weights, (0, padding)).reshape(-1, rows).astype(jnp.float64)
    return jnp.einsum("kr,krd->kd", part_weights, parts).astype(jnp.int64).sum(axis=0)


def clip_to_ball(offsets: Array, step: Array | float, limit: float, bits: int) -> Array:
    """Compute :func:`userdp.means.clipped.clip_to_lattice_ball` of offsets from the centre."""
    units = in_steps(offsets, step)
    units = jnp.where(jnp.isfinite(units).all(axis=1, keepdims=True), units, 0.0)
    exponent = jnp.maximum(jnp.frexp(jnp.abs(units).max(axis=1, keepdims=True))[1], 1)
    squares = jnp.ceil(jnp.abs(units) * jnp.ldexp(1.0, bits - exponent)) ** 2
    norms = jnp.sqrt(jnp.sum(squares, axis=1, keepdims=True)) * jnp.ldexp(1.0, exponent - bits)
    return jnp.trunc(units * (limit / jnp.maximum(norms, limit))).astype(jnp.int64)


@dataclass(frozen=True)
class ClippedSum:
    """The question of the clipped mean: the sum of its users' clipped offsets, in lattice units.

    ``limit`` and ``bits`` are :func:`~userdp.means.clipped.norm_limit` and :func:`~userdp.means.clipped.norm_bits`.
    """

    limit: float
    bits: int

    def __call__(self, vectors: Array, centre: Array, step: Array) -> Array:
        """Clip and add up one shard's users."""
        return jnp.sum(
            clip_to_ball(vectors.astype(jnp.float64) - centre, step, self.limit, self.bits), axis=0
        )
