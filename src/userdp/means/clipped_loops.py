"""Clipped means inside a compiled loop: at a fixed radius, and at one that follows a private quantile."""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import IntArray
from userdp.means.adaptive_clipped import (
    COUNT_RESOLUTION,
    LARGEST_STEP,
    RADIUS_RANGE,
    CalibratedAdaptiveClippedMean,
)
from userdp.means.clipped import CalibratedClippedMean, norm_limit
from userdp.means.in_loop import check_shape, gaussian_rows, in_steps
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.statement import PrivacyStatement


@final
@dataclass(frozen=True, eq=False)
class ClippedLoop:
    """Rounds of the clipped mean; equal ones share a compiled loop."""

    mean: CalibratedClippedMean

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClippedLoop) and self._public() == other._public()

    def __hash__(self) -> int:
        return hash(self._public())

    def _public(self) -> tuple[Any, ...]:
        mean = self.mean
        return mean.centre.tobytes(), mean.budget, mean.n_users, mean.lattice, mean.event, mean.beside

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.mean.event.rounds

    def draw(self, noise: NoiseSource) -> IntArray:
        """Draw the discrete Gaussian noise of all rounds."""
        return gaussian_rows(noise, self.mean.event.scale, self.rounds, self.mean.lattice.dimension)

    def initial_state(self) -> tuple[()]:
        """Nothing is carried."""
        return ()

    def round(self, state: tuple[()], vectors: Array, draw: Array) -> tuple[tuple[()], Array]:
        """Clip onto the lattice ball, add up, add noise."""
        lattice = self.mean.lattice
        check_shape(vectors, self.mean.n_users, lattice.dimension)
        clipped = _clip(vectors.astype(jnp.float64) - self.mean.centre, lattice.step, norm_limit(lattice))
        noisy = jnp.sum(clipped, axis=0) + draw
        return state, jnp.asarray(self.mean.centre) + noisy * (lattice.step / self.mean.n_users)

    def close(self, state: tuple[()], noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """State the guarantee; a clipped mean never halts."""
        return False, self.mean.statement(seeded=noise.seeded)


@final
@dataclass(frozen=True, eq=False)
class AdaptiveClippedLoop:
    """Rounds of the adaptive clipped mean; the radius is carried, a function of what was released."""

    mean: CalibratedAdaptiveClippedMean

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.mean.rounds

    def draw(self, noise: NoiseSource) -> dict[str, IntArray]:
        """Draw the noise of all answers and counts; the counts before the first answer are all in its round."""
        mean, T, W = self.mean, self.rounds, self.mean.estimator.warmup
        counts = noise.discrete_gaussian(mean.count.scale, W + T - 1) if mean.count else np.zeros(0, np.int64)
        warmup = np.zeros((T, W), np.int64)
        warmup[0] = counts[:W]
        answers = gaussian_rows(noise, mean.event.scale, T, mean.event.coordinates)
        return {"answer": answers, "warmup": warmup, "count": np.append(counts[W:], 0)}

    def initial_state(self) -> tuple[Array, Array]:
        """Return the number of answers, 0, and the initial radius."""
        return jnp.asarray(0), jnp.asarray(self.mean.estimator.radius, jnp.float64)

    def round(
        self, state: tuple[Array, Array], vectors: Array, draw: dict[str, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        """Clip to the radius, add up, add noise; then count, and move the radius."""
        mean = self.mean
        check_shape(vectors, mean.n_users, mean.event.coordinates)
        answered, radius = state
        offsets = vectors.astype(jnp.float64) - mean.centre
        radius = jax.lax.cond(answered == 0, lambda r: self._warm_up(r, offsets, draw), lambda r: r, radius)
        lattice = mean.lattice(mean.estimator.radius)  # of any radius: the same bits
        step = radius / lattice.radius_units
        noisy = jnp.sum(_clip(offsets, step, norm_limit(lattice)), axis=0) + draw["answer"]
        moved = self._moved(radius, offsets, draw["count"])
        radius = jnp.where(answered + 1 < self.rounds, moved, radius)
        return (answered + 1, radius), jnp.asarray(mean.centre) + noisy * (step / mean.n_users)

    def _warm_up(self, radius: Array, offsets: Array, draw: dict[str, Array]) -> Array:
        for k in range(self.mean.estimator.warmup):
            radius = self._moved(radius, offsets, draw["warmup"][k])
        return radius

    def _moved(self, radius: Array, offsets: Array, draw: Array) -> Array:
        """Return the next radius, from the noisy count of the users within this one."""
        options, n = self.mean.estimator, self.mean.n_users
        relative = in_steps(offsets, radius)
        present = jnp.isfinite(relative).all(axis=1)
        within = present & (jnp.sum(relative**2, axis=1) <= 1)
        nulls = n - jnp.sum(present)
        units = COUNT_RESOLUTION * jnp.sum(within) + round(COUNT_RESOLUTION * options.quantile) * nulls
        share = (units + draw) / (COUNT_RESOLUTION * n)
        change = jnp.clip(-options.learning_rate * (share - options.quantile), -LARGEST_STEP, LARGEST_STEP)
        return jnp.clip(radius * jnp.exp(change), *RADIUS_RANGE)

    def close(self, state: tuple[Array, Array], noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """State the guarantee; a clipped mean never halts."""
        return False, self.mean.statement(seeded=noise.seeded)


def _clip(offsets: Array, step: Array | float, limit: float) -> Array:
    """Clip rows to ``limit`` steps and round towards zero; a row that is not finite becomes zero."""
    units = in_steps(offsets, step)
    units = jnp.where(jnp.isfinite(units).all(axis=1, keepdims=True), units, 0.0)
    largest = jnp.maximum(jnp.abs(units).max(axis=1, keepdims=True), 1.0)
    norms = largest * jnp.sqrt(jnp.sum((units / largest) ** 2, axis=1, keepdims=True))
    return jnp.trunc(units * (limit / jnp.maximum(norms, limit))).astype(jnp.int64)
