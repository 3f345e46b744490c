"""Clipped means inside a compiled loop: at a fixed radius, and at one that follows a private quantile."""

from dataclasses import dataclass, field
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import FloatArray, IntArray
from userdp.means.adaptive_clipped import (
    COUNT_RESOLUTION,
    LARGEST_STEP,
    RADIUS_RANGE,
    CalibratedAdaptiveClippedMean,
)
from userdp.means.clipped import CalibratedClippedMean, norm_bits, norm_limit
from userdp.means.in_loop import Shards, check_shape, gaussian_rows, in_steps
from userdp.means.lattice import Lattice
from userdp.means.lattice_sums import ClippedSum, clip_to_ball
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.statement import PrivacyStatement


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClippedRounds:
    """What a compiled loop knows of a clipped mean; centre and steps may change without another compilation."""

    centre: Array | FloatArray
    step: Array | float
    answer_step: Array | float
    shape: tuple[int, int] = field(metadata={"static": True})
    clipped_sum: ClippedSum = field(metadata={"static": True})

    def exact(self, vectors: Array) -> Array:
        """Clip onto the lattice ball, add up."""
        check_shape(vectors, self.shape)
        return self.clipped_sum(vectors, jnp.asarray(self.centre), jnp.asarray(self.step))

    def answer(self, state: tuple[()], exact: Array, draw: Array) -> tuple[tuple[()], Array]:
        """Add noise."""
        return state, jnp.asarray(self.centre) + (exact + draw) * self.answer_step


@final
@dataclass(frozen=True, eq=False)
class ClippedLoop:
    """Rounds of the clipped mean."""

    mean: CalibratedClippedMean

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.mean.rounds

    @property
    def shape(self) -> tuple[int, int]:
        """Users and coordinates."""
        return self.mean.n_users, self.mean.lattice.dimension

    @property
    def compiled(self) -> ClippedRounds:
        """Return its numbers as arguments of a compiled loop."""
        mean, lattice = self.mean, self.mean.lattice
        question = ClippedSum(norm_limit(lattice), norm_bits(lattice.dimension))
        return ClippedRounds(mean.centre, lattice.step, lattice.step / mean.n_users, self.shape, question)

    def draw(self, noise: NoiseSource) -> IntArray:
        """Draw the discrete Gaussian noise of all rounds."""
        return gaussian_rows(noise, self.mean.event.scale, self.rounds, self.mean.lattice.dimension)

    def initial_state(self) -> tuple[()]:
        """Nothing is carried."""
        return ()

    def exact_of_shards(self, shards: Shards, hint: IntArray | None) -> tuple[IntArray, None]:
        """Clip and add up users that are spread over shards."""
        rounds = self.compiled
        parts: list[IntArray] = shards.ask(rounds.clipped_sum, rounds.centre, rounds.step)
        return np.sum(parts, axis=0), None

    def close(self, state: tuple[()], noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """State the guarantee; a clipped mean never halts."""
        return False, self.mean.statement(seeded=noise.seeded)


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdaptiveClippedRounds:
    """What a compiled loop knows of an adaptive clipped mean; the radius, made of what was released, is carried."""

    centre: Array | FloatArray
    rounds: Array | int
    quantile: Array | float
    learning_rate: Array | float
    warmup: int = field(metadata={"static": True})
    shape: tuple[int, int] = field(metadata={"static": True})

    def exact(self, vectors: Array) -> Array:
        """Return the users' offsets from the centre: what is asked of them depends on the radius."""
        check_shape(vectors, self.shape)
        return vectors.astype(jnp.float64) - jnp.asarray(self.centre)

    def answer(
        self, state: tuple[Array, Array], exact: Array, draw: dict[str, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        """Clip to the radius, add up, add noise; then count, and move the radius."""
        (answered, radius), offsets = state, exact
        radius = jax.lax.cond(answered == 0, lambda r: self._warm_up(r, offsets, draw), lambda r: r, radius)
        lattice = Lattice.fine_enough(1.0, *self.shape)  # the same bits for every radius
        step = radius / lattice.radius_units
        clipped = clip_to_ball(offsets, step, norm_limit(lattice), norm_bits(lattice.dimension))
        noisy = jnp.sum(clipped, axis=0) + draw["answer"]
        moved = self._moved(radius, offsets, draw["count"])
        radius = jnp.where(answered + 1 < self.rounds, moved, radius)
        return (answered + 1, radius), jnp.asarray(self.centre) + noisy * (step / self.shape[0])

    def _warm_up(self, radius: Array, offsets: Array, draw: dict[str, Array]) -> Array:
        for k in range(self.warmup):
            radius = self._moved(radius, offsets, draw["warmup"][k])
        return radius

    def _moved(self, radius: Array, offsets: Array, draw: Array) -> Array:
        """Return the next radius, from the noisy count of the users within this one."""
        n = self.shape[0]
        relative = in_steps(offsets, radius)
        present = jnp.isfinite(relative).all(axis=1)
        within = present & (jnp.sum(relative**2, axis=1) <= 1)
        of_a_null = jnp.rint(COUNT_RESOLUTION * self.quantile).astype(jnp.int64)
        units = COUNT_RESOLUTION * jnp.sum(within) + of_a_null * (n - jnp.sum(present))
        share = (units + draw) / (COUNT_RESOLUTION * n)
        change = jnp.clip(-self.learning_rate * (share - self.quantile), -LARGEST_STEP, LARGEST_STEP)
        return jnp.clip(radius * jnp.exp(change), *RADIUS_RANGE)


@final
@dataclass(frozen=True, eq=False)
class AdaptiveClippedLoop:
    """Rounds of the adaptive clipped mean."""

    mean: CalibratedAdaptiveClippedMean

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.mean.rounds

    @property
    def shape(self) -> tuple[int, int]:
        """Users and coordinates."""
        return self.mean.n_users, self.mean.event.coordinates

    @property
    def compiled(self) -> AdaptiveClippedRounds:
        """Return its numbers as arguments of a compiled loop."""
        mean, options = self.mean, self.mean.estimator
        return AdaptiveClippedRounds(
            mean.centre, self.rounds, options.quantile, mean.learning_rate, options.warmup, self.shape
        )

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

    def close(self, state: tuple[Array, Array], noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """State the guarantee; a clipped mean never halts."""
        return False, self.mean.statement(seeded=noise.seeded)
