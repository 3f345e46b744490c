"""The library's means as rounds of a compiled loop (:mod:`userdp.means.in_loop`)."""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import IntArray
from userdp.errors import NotConcentratedError
from userdp.means.adaptive_clipped import CalibratedAdaptiveClippedMean
from userdp.means.certified import NOT_CONCENTRATED, CertifiedMean
from userdp.means.clipped import CalibratedClippedMean
from userdp.means.clipped_loops import AdaptiveClippedLoop, ClippedLoop
from userdp.means.crowd import crowd_of
from userdp.means.in_loop import InLoopMean, Shards, check_shape, gaussian_rows
from userdp.means.in_loop_friends import friends
from userdp.means.interface import CalibratedMean
from userdp.means.lattice import Lattice
from userdp.means.lattice_sums import round_to_lattice, weighted_total
from userdp.means.paper import FINENESS, PaperMean
from userdp.means.sensitivity import ramp_start
from userdp.means.sharded import ExactMean, Ramp, mean_of_shards
from userdp.mechanisms.gates import DeferredGate
from userdp.mechanisms.noise import NoiseSource, laplace_scale
from userdp.privacy.calibration import INDEX_RESOLUTION, DeferredSetting
from userdp.privacy.statement import PrivacyStatement


def in_loop(mean: CalibratedMean) -> InLoopMean | None:
    """Return the form of a calibrated mean that runs inside a compiled loop; None where it has none.

    A mean whose answers leave one by one, or that draws noise by what it has seen, is asked round by round instead.
    """
    match mean:
        case InLoopMean():
            return mean
        case CertifiedMean(setting=DeferredSetting() as setting):
            return CertifiedLoop(mean, setting)
        case PaperMean():
            return PaperLoop(mean)
        case CalibratedClippedMean():
            return ClippedLoop(mean)
        case CalibratedAdaptiveClippedMean():
            return AdaptiveClippedLoop(mean)
    return None


@final
@jax.tree_util.register_static
@dataclass(frozen=True)
class CertifiedLoop:
    """Rounds of the certified mean with the deferred gate; only :meth:`close` may let them leave."""

    mean: CertifiedMean
    setting: DeferredSetting

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.mean.rounds

    @property
    def shape(self) -> tuple[int, int]:
        """Users and coordinates."""
        return self.mean.n_users, self.mean.lattice.dimension

    def draw(self, noise: NoiseSource) -> IntArray:
        """Draw the discrete Gaussian noise of all rounds."""
        scale = self.mean.mean_event(self.setting.index).scale
        return gaussian_rows(noise, scale, self.rounds, self.mean.lattice.dimension)

    def initial_state(self) -> Array:
        """Return the smallest index so far: of no round, the number of users."""
        return jnp.asarray(self.mean.n_users, jnp.int64)

    @property
    def compiled(self) -> "CertifiedLoop":
        """Return itself, all of it a part of the program."""
        return self

    @property
    def ramp(self) -> Ramp:
        """Where weights begin and end."""
        return Ramp(self.mean.lattice, ramp_start(self.mean.n_users), self.setting.index - 1)

    def exact(self, vectors: Array) -> ExactMean:
        """Weigh and average."""
        lattice, ramp = self.mean.lattice, self.ramp
        check_shape(vectors, self.shape)
        crowd = crowd_of(vectors, lattice)

        def of_friends() -> ExactMean:
            # With equal weights w the mean is that of weights one.
            total, anyone = crowd.total.astype(jnp.int64), crowd.number > ramp.lo
            return ExactMean(*_ratio(crowd.origin, total, crowd.number, anyone, lattice), crowd.number)

        def of_others() -> ExactMean:
            units = round_to_lattice(vectors, lattice)  # again: rounds of friends need not keep them
            weights, index = friends(units, lattice.radius_units, ramp.lo, ramp.hi)
            return ExactMean(*_weighted_mean(units, weights, lattice, ramp.hi - ramp.lo), index)

        found: ExactMean = jax.lax.cond(crowd.all_friends, of_friends, of_others)
        return found

    def exact_of_shards(self, shards: Shards, hint: IntArray | None) -> tuple[ExactMean, IntArray | None]:
        """Weigh and average users that are spread over shards."""
        return mean_of_shards(shards, self.ramp, hint)

    def answer(self, state: Array, exact: ExactMean, draw: Array) -> tuple[Array, Array]:
        """Remember the index and add noise."""
        answer = _value(exact.whole, exact.fraction + draw, self.mean.lattice)
        return jnp.minimum(state, exact.index), answer

    def close(self, state: Array, noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """Pass the gate, once."""
        gate = DeferredGate(INDEX_RESOLUTION, self.setting.scale, self.setting.threshold, noise)
        gate.observe(int(state))
        if not gate.passes():
            raise NotConcentratedError(NOT_CONCENTRATED)
        return False, self.mean.statement(self.setting.index, seeded=noise.seeded)


@final
@jax.tree_util.register_static
@dataclass(frozen=True)
class PaperLoop:
    """Rounds of the paper's Algorithm 2, which answers zero once it has halted."""

    mean: PaperMean

    @property
    def rounds(self) -> int:
        """How many queries Algorithm 2 was set up for."""
        return self.mean.rounds

    @property
    def shape(self) -> tuple[int, int]:
        """Users and coordinates."""
        return self.mean.n_users, self.mean.dimension

    def draw(self, noise: NoiseSource) -> dict[str, Any]:
        """Draw AboveThreshold's noise, the keys of the coin flips and the Gaussian noise."""
        T, n, epsilon = self.rounds, self.mean.n_users, self.mean.budget.epsilon / 2
        # One threshold draw serves all rounds.
        threshold = -(-4 * n * n // 5) - noise.discrete_laplace(laplace_scale(2 * n, epsilon), 1)
        return {
            "threshold": np.broadcast_to(threshold, (T,)),
            "query": noise.discrete_laplace(laplace_scale(4 * n, epsilon), T),
            "coins": np.frombuffer(noise.generator().bytes(8 * T), np.uint32).reshape(T, 2),
            "gaussian": gaussian_rows(noise, FINENESS, T, self.mean.dimension),
        }

    def initial_state(self) -> Array:
        """Not halted."""
        return jnp.asarray(False)

    @property
    def compiled(self) -> "PaperLoop":
        """Return itself, all of it a part of the program."""
        return self

    def exact(self, vectors: Array) -> tuple[Array, Array, Array]:
        """Count friends at both radii."""
        check_shape(vectors, self.shape)
        x, tau = vectors.astype(jnp.float64), self.mean.radius
        return x, jnp.sum(_plain_counts(x, tau)), _plain_counts(x, 2 * tau)

    def answer(
        self, state: Array, exact: tuple[Array, Array, Array], draw: dict[str, Array]
    ) -> tuple[Array, Array]:
        """Compare the score, keep by coin flips, average, add noise."""
        (x, score, near), n = exact, self.mean.n_users
        halted = state | (score + draw["query"] < draw["threshold"])
        ramp = jnp.clip((near - n / 2) / (n / 6), 0.0, 1.0)
        keep = jax.random.uniform(jax.random.wrap_key_data(draw["coins"]), (n,)) < ramp
        kept = jnp.sum(jnp.where(keep[:, None], x, 0.0), axis=0) / jnp.maximum(jnp.sum(keep), 1)
        answer = kept + draw["gaussian"] / FINENESS * self.mean.noise_std
        return halted, jnp.where(halted, 0.0, answer)

    def close(self, state: Array, noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """Say whether it halted and what the paper claims."""
        return bool(state), self.mean.statement(seeded=noise.seeded)


def _weighted_mean(units: Array, weights: Array, lattice: Lattice, largest: int) -> tuple[Array, Array]:
    """Compute :meth:`Lattice.mean` on integers."""
    origin = units[jnp.argmax(weights)]
    total = weighted_total(units, weights, origin, lattice, largest)
    return _ratio(jnp.nan_to_num(origin), total, weights.sum(), jnp.any(weights > 0), lattice)


def _ratio(
    origin: Array, total: Array, weight: Array, anyone: Array, lattice: Lattice
) -> tuple[Array, Array]:
    """Compute :meth:`Lattice.ratio`; zero where nobody has weight."""
    weight = jnp.maximum(weight, 1)
    whole, rest = jnp.divmod(total, weight)
    fraction = ((rest << lattice.answer_bits) + weight // 2) // weight
    return jnp.where(anyone, origin.astype(jnp.int64) + whole, 0), jnp.where(anyone, fraction, 0)


def _value(whole: Array, answer_units: Array, lattice: Lattice) -> Array:
    """Compute :meth:`Lattice.value`."""
    carry, rest = jnp.divmod(answer_units, 1 << lattice.answer_bits)
    return ((whole + carry) + rest / 2.0**lattice.answer_bits) * lattice.step


def _plain_counts(x: Array, radius: float) -> Array:
    """Count friends by the definition, a user at a time; null users have and are none."""
    present = jnp.isfinite(x).all(axis=1)

    def of_one(row: Array) -> Array:
        return jnp.sum((jnp.sqrt(jnp.sum((row - x) ** 2, axis=1)) <= radius) & present)

    return jnp.where(present, jax.lax.map(of_one, x), 0)
