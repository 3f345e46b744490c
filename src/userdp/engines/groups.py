"""Fixed groups of users that stand for one user each, where there are too many users to compare.

A group's vector is the average of its members' vectors, null members left out; null if all are. The groups are users
that follow each other in a secret random order, so replacing one user changes one group's vector, also if the new one
has another id (``docs/proofs/dp_sgd.md``): whoever protects each group protects each user. Averages of g users lie
about sqrt(g) closer together, and there are g times fewer of them: with radii that follow, the mean has sqrt(g) times
the noise of single users.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import IntArray
from userdp.engines.layout import LaidOut
from userdp.errors import InvalidInputError


def n_groups(n_users: int, group_size: int) -> int:
    """How many groups there are; the last one may be smaller."""
    if group_size < 1:
        raise InvalidInputError(f"group_size must be at least 1, got {group_size}")
    return -(-n_users // group_size)


def users_of(groups: IntArray, group_size: int, n_users: int) -> IntArray:
    """Return the places of the users of some groups.

    Examples
    --------
    >>> users_of(np.array([3, 0]), 2, n_users=7).tolist()  # the last group has one user
    [6, 0, 1]
    """
    places = (groups[:, None] * group_size + np.arange(group_size)).ravel()
    found: IntArray = places[places < n_users]
    return found


def members(laid_out: LaidOut, group_size: int) -> IntArray:
    """Return where each group's users are, shape ``(n_groups, group_size)``; -1 where there is none."""
    positions = np.concatenate([np.asarray(b.positions)[: b.n_users] for b in laid_out])
    is_real = np.concatenate([np.arange(b.n_users) < int(b.count) for b in laid_out])
    rows = np.flatnonzero(is_real)
    rows = rows[np.argsort(positions[rows], kind="stable")]
    padded = np.full(n_groups(len(rows), group_size) * group_size, -1, np.int64)
    padded[: len(rows)] = rows
    return padded.reshape(-1, group_size)


def average(vectors: Array, groups: Array) -> Array:
    """Average the groups, in float64 and member by member: the same bits wherever the members' rows are."""

    def add(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        total, number = sums
        rows = jnp.where(groups[:, k, None] >= 0, vectors[groups[:, k]].astype(jnp.float64), jnp.nan)
        there = jnp.isfinite(rows).all(axis=1, keepdims=True)
        return total + jnp.where(there, rows, 0.0), number + there

    shape = (groups.shape[0], vectors.shape[1])
    zero = (jnp.zeros(shape, jnp.float64), jnp.zeros((shape[0], 1), jnp.float64))
    total, number = jax.lax.fori_loop(0, groups.shape[1], add, zero)
    return jnp.where(number > 0, total / number, jnp.nan)


@lru_cache(maxsize=64)
def grouped(user_gradients: Any) -> Any:
    """Return gradients of groups, from ``(users, members)``, for gradients of users."""

    def group_gradients(data: tuple[LaidOut, Array], theta: Array, key: Array) -> Array:
        users, groups = data
        return average(user_gradients(users, theta, key), groups)

    return group_gradients
