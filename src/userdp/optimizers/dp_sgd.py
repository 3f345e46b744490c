r"""Algorithm 3 of Asi & Liu (2023): SGD on users' mean gradients, one private mean per step.

    g_t     = private mean over users of their mean gradient at theta_t
    theta_(t+1) = Proj(theta_t - eta (g_t + ridge (theta_t - centre)))

The answer is the average of theta_1, ..., theta_T, and theta_0 if the mean halts. Any private mean will do. Where it
can run inside a loop, all rounds are compiled together and its noise is drawn ahead on the host; otherwise it is asked
round by round.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import FloatArray
from userdp.engines.local import GradientOracle
from userdp.errors import InvalidInputError
from userdp.means.in_loop import InLoopMean
from userdp.means.interface import CalibratedMean, Session
from userdp.means.loops import in_loop
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.statement import PrivacyStatement
from userdp.problems import Domain, WholeSpace
from userdp.problems._checks import count, positive, settle

# One object, since domains compare by identity: runs that differ in their data alone share a compiled loop.
EVERYWHERE = WholeSpace()


@dataclass(frozen=True)
class Solution:
    """What an optimizer returns: the released point and its guarantee.

    Attributes
    ----------
    point : array of shape (dimension,)
        The answer.
    privacy : PrivacyStatement
        What it cost.
    halted : bool
        Whether the private mean halted, as the paper's may; the point is then the starting point.
    """

    point: FloatArray
    privacy: PrivacyStatement
    halted: bool = False


@dataclass(frozen=True)
class DPSGD:
    """User-level DP-SGD with its numbers fixed.

    **Guarantee**: that of the private mean over its T adaptive rounds; the rest is post-processing
    (``docs/proofs/dp_sgd.md``).

    Parameters
    ----------
    rounds : int
        T, how many private means are asked for.
    step_size : float
        eta.
    domain : Domain
        Where theta may lie; its projection follows every step.
    averaged_share : float
        Share of the iterates, counted from the end, that the answer averages: 1 as in the paper.
    """

    rounds: int
    step_size: float
    domain: Domain = EVERYWHERE
    averaged_share: float = 1.0

    def __post_init__(self) -> None:
        settle(
            self,
            rounds=count("rounds", self.rounds, 1, "say how many private means are asked for"),
            step_size=positive("step_size", self.step_size, "give eta"),
        )
        if not isinstance(self.domain, Domain):
            raise InvalidInputError(
                f"domain must be a userdp.problems.Domain, got {type(self.domain).__name__}"
            )
        if not 0 < self.averaged_share <= 1:
            raise InvalidInputError(f"averaged_share must lie in (0, 1], got {self.averaged_share!r}")

    def run(
        self,
        oracle: GradientOracle,
        mean: CalibratedMean,
        noise: NoiseSource,
        start: FloatArray | None = None,
    ) -> Solution:
        """Run all rounds from ``start`` (the origin, projected, by default).

        Raises
        ------
        NotConcentratedError
            If the mean refuses, at its end or in some round; nothing of the run is then released.
        """
        if mean.rounds != self.rounds:
            raise InvalidInputError(
                f"the mean was calibrated for {mean.rounds} rounds, the optimizer takes {self.rounds}"
            )
        first = starting_point(start, oracle.dimension)
        private = in_loop(mean)
        with jax.enable_x64(True):
            seed = noise.generator().integers(2**63)
            theta_0 = self.domain.project(jnp.asarray(first))
            if private is None:
                return self._round_by_round(oracle, mean.start(noise), theta_0, jax.random.key(seed))
            average, state = _loop(
                self,
                private,
                oracle.user_gradients,
                oracle.ridge,
                oracle.data,
                _ridge_centre(oracle, theta_0),
                theta_0,
                private.draw(noise),
                jax.random.key(seed),
            )
            halted, statement = private.close(state, noise)
            return Solution(np.asarray(theta_0 if halted else average), statement, halted)

    def _round_by_round(
        self, oracle: GradientOracle, session: Session, theta_0: Array, key: Array
    ) -> Solution:
        """Ask a session: its answers may leave as they come, so what is computed from them may as well."""
        theta, total = theta_0, jnp.zeros_like(theta_0)
        centre = _ridge_centre(oracle, theta_0)
        for t in range(self.rounds):
            vectors = _gradients(oracle.user_gradients, oracle.data, theta, jax.random.fold_in(key, t))
            answer = session.answer(np.asarray(vectors, dtype=np.float64))
            theta = _step(self, oracle.ridge, theta, jnp.asarray(answer), centre)
            total = total + theta if t >= self.first_averaged else total
        statement = session.finish()
        average = total / (self.rounds - self.first_averaged)
        return Solution(np.asarray(theta_0 if session.halted else average), statement, session.halted)

    @property
    def first_averaged(self) -> int:
        """The first round whose iterate enters the answer."""
        return min(self.rounds - 1, self.rounds - round(self.averaged_share * self.rounds))


def starting_point(start: FloatArray | None, dimension: int) -> FloatArray:
    """Check where to start; the origin by default."""
    first = np.zeros(dimension) if start is None else np.asarray(start, dtype=np.float64)
    if first.shape != (dimension,):
        raise InvalidInputError(f"start must have shape ({dimension},), got {first.shape}")
    if not np.isfinite(first).all():
        raise InvalidInputError("start must be finite: at another point every user would be null")
    return first


def _ridge_centre(oracle: GradientOracle, theta_0: Array) -> Array:
    return jnp.zeros_like(theta_0) if oracle.ridge_centre is None else jnp.asarray(oracle.ridge_centre)


@partial(jax.jit, static_argnums=0)
def _gradients(user_gradients: Any, data: Any, theta: Array, key: Array) -> Array:
    gradients: Array = user_gradients(data, theta, key)
    return gradients


@partial(jax.jit, static_argnums=(0, 1))
def _step(optimizer: DPSGD, ridge: float, theta: Array, gradient: Array, ridge_centre: Array) -> Array:
    """Return Proj(theta - eta (g + ridge (theta - centre)))."""
    return optimizer.domain.project(theta - optimizer.step_size * (gradient + ridge * (theta - ridge_centre)))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _loop(
    optimizer: DPSGD,
    private: InLoopMean,
    user_gradients: Any,
    ridge: float,
    data: Any,
    ridge_centre: Array,
    theta_0: Array,
    draws: Any,
    key: Array,
) -> tuple[Array, Any]:
    """Run the rounds; return the average iterate and the mean's final state."""

    def step(carry: tuple[Array, Array, Any], round_: tuple[Array, Any]) -> tuple[Any, None]:
        theta, total, state = carry
        t, draw = round_
        vectors = user_gradients(data, theta, jax.random.fold_in(key, t))
        state, gradient = private.round(state, vectors, draw)
        theta = _step(optimizer, ridge, theta, gradient, ridge_centre)
        total = total + jnp.where(t >= optimizer.first_averaged, theta, 0.0)
        return (theta, total, state), None

    start = (theta_0, jnp.zeros_like(theta_0), private.initial_state())
    rounds = (jnp.arange(optimizer.rounds), draws)
    (_, total, state), _ = jax.lax.scan(step, start, rounds)
    return total / (optimizer.rounds - optimizer.first_averaged), state
