r"""The opponent: full-batch DP gradient descent with per-user clipping, many settings at once, on any JAX device.

Each round averages the users' mean gradients clipped to norm C around zero and adds Gaussian noise of standard
deviation 2 C sqrt(T)/(n mu): T rounds are mu-GDP for replacing one user. Peers do the same, by their own code; here a
whole grid of clips, steps, epsilons and seeds goes through every round together, which is what makes tuning affordable.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.problem import Array, Rows

# Floats of one chunk's residuals; chunks bound the memory whatever the grid.
CHUNK_FLOATS = {"cpu": 2**23, "gpu": 2**29}


@dataclass(frozen=True)
class Runs:
    """One column per run: its clip, step, noise multiplier (noise over clip, at one round) and seed."""

    clip: Array
    step: Array
    noise: Array
    seed: Array
    start: Array = field(repr=False)


@dataclass(frozen=True)
class Padded:
    """Rows of shape (users, items, features), weights 1/m within a user and 0 for padding; on the device."""

    X: Any
    y: Any
    weights: Any

    @staticmethod
    def of(rows: Rows) -> "Padded":
        items = int(rows.items.max())
        place = (rows.groups, np.arange(len(rows.y)) - np.repeat(rows.offsets[:-1], rows.items))
        X = np.zeros((rows.n_users, items, rows.X.shape[1]), np.float32)
        y, weights = np.zeros((2, rows.n_users, items), np.float32)
        X[place], y[place], weights[place] = rows.X, rows.y, np.repeat(1 / rows.items, rows.items)
        return Padded(X, y, weights)

    def chunked(self, columns: int) -> "Padded":
        """Cut the users into chunks, the last one filled up by users without weight."""
        n, items = self.y.shape
        size = max(1, CHUNK_FLOATS[jax.default_backend()] // (columns * max(items, self.X.shape[2])))
        count = -(-n // size)
        size = -(-n // count)

        def cut(array: Array) -> Any:
            filled = np.concatenate([array, np.zeros((count * size - n, *array.shape[1:]), array.dtype)])
            return jnp.asarray(filled.reshape(count, size, *array.shape[1:]))

        return Padded(cut(self.X), cut(self.y), cut(self.weights))


jax.tree_util.register_dataclass(Padded, ["X", "y", "weights"], [])
jax.tree_util.register_dataclass(Runs, ["clip", "step", "noise", "seed", "start"], [])


def _clipped_sum(task: str, data: Padded, theta: Any, clip: Any) -> Any:
    """Sum over users of their mean gradients, each clipped; theta has one column per run."""

    def add(total: Any, chunk: Padded) -> tuple[Any, None]:
        z = jnp.einsum("umd,dk->umk", chunk.X, theta)
        p = jax.nn.sigmoid(z) if task == "classification" else z
        residual = chunk.weights[..., None] * (p - chunk.y[..., None])
        gradient = jnp.einsum("umd,umk->udk", chunk.X, residual)
        norm = jnp.sqrt((gradient**2).sum(axis=1))
        return total + (gradient * jnp.minimum(1, clip / (norm + 1e-12))[:, None]).sum(axis=0), None

    return jax.lax.scan(add, jnp.zeros_like(theta), data)[0]


@partial(jax.jit, static_argnums=(0, 3))
def _descend(task: str, data: Padded, runs: Runs, n_users: int, rounds: int) -> Any:
    keys = jax.vmap(jax.random.key)(runs.seed)
    d = data.X.shape[-1]

    def one_round(t: Any, theta: Any) -> Any:
        normal = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, t), (d,)))(keys).T
        noise = runs.noise * jnp.sqrt(rounds) * runs.clip * normal
        return theta - runs.step * (_clipped_sum(task, data, theta, runs.clip) / n_users + noise)

    return jax.lax.fori_loop(0, rounds, one_round, runs.start)


@partial(jax.jit, static_argnums=0)
def _mean_loss(task: str, data: Padded, theta: Any) -> Any:
    """User-averaged loss of every column."""

    def add(total: Any, chunk: Padded) -> tuple[Any, None]:
        z = jnp.einsum("umd,dk->umk", chunk.X, theta)
        y = chunk.y[..., None]
        loss = jnp.logaddexp(0, z) - y * z if task == "classification" else (z - y) ** 2
        return total + (loss * chunk.weights[..., None]).sum(axis=(0, 1)), None

    return jax.lax.scan(add, jnp.zeros(theta.shape[1]), data)[0]


def descend(task: str, train: Padded, runs: Runs, rounds: int) -> Array:
    """Return the last iterates, one column per run."""
    with jax.default_matmul_precision("float32"):
        data = train.chunked(len(runs.clip))
        return np.asarray(_descend(task, data, runs, len(train.y), rounds))


def mean_loss(task: str, test: Padded, theta: Array) -> Array:
    """Return the user-averaged test loss of every column, infinite where descent diverged."""
    with jax.default_matmul_precision("float32"):
        loss = np.asarray(_mean_loss(task, test.chunked(theta.shape[1]), theta)) / len(test.y)
    return np.where(np.isfinite(loss), loss, np.inf)
