"""The library's means as rounds of a compiled loop (:mod:`userdp.means.in_loop`)."""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import IntArray
from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means.certified import NOT_CONCENTRATED, CertifiedMean
from userdp.means.clipped import CalibratedClippedMean, norm_limit
from userdp.means.in_loop import InLoopMean
from userdp.means.in_loop_friends import friends
from userdp.means.interface import CalibratedMean
from userdp.means.lattice import COORDINATE_LIMIT, Lattice
from userdp.means.paper import FINENESS, PaperMean
from userdp.means.sensitivity import ramp_start
from userdp.mechanisms.gates import DeferredGate
from userdp.mechanisms.noise import NoiseSource, laplace_scale
from userdp.privacy.calibration import INDEX_RESOLUTION, DeferredSetting
from userdp.privacy.statement import PrivacyStatement


def in_loop(mean: CalibratedMean) -> InLoopMean:
    """Return the form of a calibrated mean that runs inside a compiled loop.

    Raises
    ------
    InvalidInputError
        For a mean whose answers leave one by one, or that has no such form.
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
    raise InvalidInputError(
        f'{type(mean).__name__} cannot run inside a loop; use ConcentratedMean(radius, gate="deferred")'
    )


@final
@dataclass(frozen=True)
class CertifiedLoop:
    """Rounds of the certified mean with the deferred gate; only :meth:`close` may let them leave."""

    mean: CertifiedMean
    setting: DeferredSetting

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.mean.rounds

    def draw(self, noise: NoiseSource) -> IntArray:
        """Draw the discrete Gaussian noise of all rounds."""
        scale = self.mean.mean_event(self.setting.index).scale
        return _gaussian_rows(noise, scale, self.rounds, self.mean.lattice.dimension)

    def initial_state(self) -> Array:
        """Return the smallest index so far: of no round, the number of users."""
        return jnp.asarray(self.mean.n_users, jnp.int64)

    def round(self, state: Array, vectors: Array, draw: Array) -> tuple[Array, Array]:
        """Weigh, average and add noise."""
        lattice = self.mean.lattice
        _check_query(vectors, self.mean.n_users, lattice.dimension)
        units = _round_to_lattice(vectors, lattice)
        lo, hi = ramp_start(self.mean.n_users), self.setting.index - 1
        weights, index = friends(units, lattice.radius_units, lo, hi)
        whole, fraction = _weighted_mean(units, weights, lattice, hi - lo)
        return jnp.minimum(state, index), _value(whole, fraction + draw, lattice)

    def close(self, state: Array, noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """Pass the gate, once."""
        gate = DeferredGate(INDEX_RESOLUTION, self.setting.scale, self.setting.threshold, noise)
        gate.observe(int(state))
        if not gate.passes():
            raise NotConcentratedError(NOT_CONCENTRATED)
        return False, self.mean.statement(self.setting.index, seeded=noise.seeded)


@final
@dataclass(frozen=True)
class PaperLoop:
    """Rounds of the paper's Algorithm 2, which answers zero once it has halted."""

    mean: PaperMean

    @property
    def rounds(self) -> int:
        """How many queries Algorithm 2 was set up for."""
        return self.mean.rounds

    def draw(self, noise: NoiseSource) -> dict[str, Any]:
        """Draw AboveThreshold's noise, the keys of the coin flips and the Gaussian noise."""
        T, n, epsilon = self.rounds, self.mean.n_users, self.mean.budget.epsilon / 2
        # One threshold draw serves all rounds.
        threshold = -(-4 * n * n // 5) - noise.discrete_laplace(laplace_scale(2 * n, epsilon), 1)
        return {
            "threshold": np.broadcast_to(threshold, (T,)),
            "query": noise.discrete_laplace(laplace_scale(4 * n, epsilon), T),
            "coins": np.frombuffer(noise.generator().bytes(8 * T), np.uint32).reshape(T, 2),
            "gaussian": _gaussian_rows(noise, FINENESS, T, self.mean.dimension),
        }

    def initial_state(self) -> Array:
        """Not halted."""
        return jnp.asarray(False)

    def round(self, state: Array, vectors: Array, draw: dict[str, Array]) -> tuple[Array, Array]:
        """Score, keep by coin flips, average, add noise."""
        _check_query(vectors, self.mean.n_users, self.mean.dimension)
        x = vectors.astype(jnp.float64)
        n, tau = self.mean.n_users, self.mean.radius
        close, near = _plain_counts(x, tau), _plain_counts(x, 2 * tau)
        halted = state | (jnp.sum(close) + draw["query"] < draw["threshold"])
        ramp = jnp.clip((near - n / 2) / (n / 6), 0.0, 1.0)
        keep = jax.random.uniform(jax.random.wrap_key_data(draw["coins"]), (n,)) < ramp
        kept = jnp.sum(jnp.where(keep[:, None], x, 0.0), axis=0) / jnp.maximum(jnp.sum(keep), 1)
        answer = kept + draw["gaussian"] / FINENESS * self.mean.noise_std
        return halted, jnp.where(halted, 0.0, answer)

    def close(self, state: Array, noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """Say whether it halted and what the paper claims."""
        return bool(state), self.mean.statement(seeded=noise.seeded)


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
        return _gaussian_rows(noise, self.mean.event.scale, self.rounds, self.mean.lattice.dimension)

    def initial_state(self) -> tuple[()]:
        """Nothing is carried."""
        return ()

    def round(self, state: tuple[()], vectors: Array, draw: Array) -> tuple[tuple[()], Array]:
        """Clip onto the lattice ball, add up, add noise."""
        lattice, limit = self.mean.lattice, norm_limit(self.mean.lattice)
        _check_query(vectors, self.mean.n_users, lattice.dimension)
        units = _in_steps(vectors.astype(jnp.float64) - self.mean.centre, lattice)
        units = jnp.where(jnp.isfinite(units).all(axis=1, keepdims=True), units, 0.0)
        largest = jnp.maximum(jnp.abs(units).max(axis=1, keepdims=True), 1.0)
        norms = largest * jnp.sqrt(jnp.sum((units / largest) ** 2, axis=1, keepdims=True))
        clipped = jnp.trunc(units * (limit / jnp.maximum(norms, limit))).astype(jnp.int64)
        noisy = jnp.sum(clipped, axis=0) + draw
        return state, jnp.asarray(self.mean.centre) + noisy * (lattice.step / self.mean.n_users)

    def close(self, state: tuple[()], noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """State the guarantee; a clipped mean never halts."""
        return False, self.mean.statement(seeded=noise.seeded)


def _check_query(vectors: Array, n_users: int, dimension: int) -> None:
    """Refuse, while the loop is compiled, vectors of another shape than the noise was calibrated for."""
    if vectors.shape != (n_users, dimension):
        raise InvalidInputError(
            f"the noise was calibrated for vectors of shape {(n_users, dimension)}, got {vectors.shape}"
        )


def _gaussian_rows(noise: NoiseSource, scale: float, rounds: int, dimension: int) -> IntArray:
    return noise.discrete_gaussian(scale, rounds * dimension).reshape(rounds, dimension)


def _in_steps(x: Array, lattice: Lattice) -> Array:
    """Divide by the lattice's step, correctly rounded as NumPy does; not finite where x is not.

    XLA would multiply by the reciprocal of a constant, and of any scalar: half-way cases would then round to
    another lattice point than in a session. So the divisor is made to depend on x, which changes no finite number.
    """
    return x / (lattice.step + 0.0 * x)


def _round_to_lattice(vectors: Array, lattice: Lattice) -> Array:
    units = jnp.rint(_in_steps(vectors.astype(jnp.float64), lattice))
    usable = (jnp.abs(units) <= COORDINATE_LIMIT).all(axis=1, keepdims=True)
    return jnp.where(usable, units, jnp.nan)


def _weighted_mean(units: Array, weights: Array, lattice: Lattice, largest: int) -> tuple[Array, Array]:
    """Compute :meth:`Lattice.mean` on integers, by partial sums that float64 holds exactly."""
    n, d = units.shape
    origin = units[jnp.argmax(weights)]
    offsets = jnp.where(weights[:, None] > 0, units - origin, 0.0)
    rows = min(n, 2**53 // (largest * 2 * lattice.radius_units))
    padding = -n % rows
    parts = jnp.pad(offsets, ((0, padding), (0, 0))).reshape(-1, rows, d)
    part_weights = jnp.pad(weights, (0, padding)).reshape(-1, rows).astype(jnp.float64)
    total = jnp.einsum("kr,krd->kd", part_weights, parts).astype(jnp.int64).sum(axis=0)
    weight = jnp.maximum(weights.sum(), 1)
    whole, rest = jnp.divmod(total, weight)
    fraction = ((rest << lattice.answer_bits) + weight // 2) // weight
    anyone = jnp.any(weights > 0)
    return jnp.where(anyone, jnp.nan_to_num(origin).astype(jnp.int64) + whole, 0), jnp.where(
        anyone, fraction, 0
    )


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
