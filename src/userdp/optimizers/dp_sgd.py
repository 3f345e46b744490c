r"""Algorithm 3 of Asi & Liu (2023): SGD on users' mean gradients, one private mean per step.

    g_t     = private mean over users of their mean gradient at theta_t
    theta_(t+1) = Proj(theta_t - eta (g_t + ridge (theta_t - centre)))

The answer is the average of theta_1, ..., theta_T, and theta_0 if the mean halts. Any private mean will do. Where it
can run inside a loop its noise is drawn ahead on the host, and on one machine all rounds are compiled together
(:mod:`userdp.optimizers.rounds`); otherwise it is asked round by round.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from userdp.arrays import FloatArray
from userdp.engines.local import GradientOracle
from userdp.engines.shards import ShardedOracle
from userdp.errors import InvalidInputError
from userdp.means.in_loop import ShardedMean
from userdp.means.interface import CalibratedMean
from userdp.means.loops import in_loop
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.rounds import Descent, Progress, run_rounds, run_session
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
    step_size : float or array of shape (dimension,)
        eta, one for all coordinates or one for each; a coordinate whose step is 0 stays where it starts.
    domain : Domain
        Where theta may lie; its projection follows every step.
    averaged_share : float
        Share of the iterates, counted from the end, that the answer averages: 1 as in the paper.
    """

    rounds: int
    step_size: float | FloatArray
    domain: Domain = EVERYWHERE
    averaged_share: float = 1.0

    def __post_init__(self) -> None:
        settle(
            self,
            rounds=count("rounds", self.rounds, 1, "say how many private means are asked for"),
            step_size=_steps(self.step_size),
        )
        if not isinstance(self.domain, Domain):
            raise InvalidInputError(
                f"domain must be a userdp.problems.Domain, got {type(self.domain).__name__}"
            )
        if not 0 < self.averaged_share <= 1:
            raise InvalidInputError(f"averaged_share must lie in (0, 1], got {self.averaged_share!r}")

    def run(
        self,
        oracle: GradientOracle | ShardedOracle,
        mean: CalibratedMean,
        noise: NoiseSource,
        start: FloatArray | None = None,
        progress: Progress | None = None,
    ) -> Solution:
        """Run all rounds from ``start`` (the origin, projected, by default).

        ``progress`` keeps the rounds of a run that may be interrupted (:class:`userdp.optimizers.Checkpoint`).

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
        if np.ndim(self.step_size) and np.shape(self.step_size) != (oracle.dimension,):
            raise InvalidInputError(
                f"step_size must be one number or {oracle.dimension}, one for each coordinate; "
                f"got shape {np.shape(self.step_size)}"
            )
        private = in_loop(mean)
        if isinstance(oracle, ShardedOracle) and not isinstance(private, ShardedMean):
            raise InvalidInputError(
                f"{type(mean).__name__} needs all users' vectors in one place; use the local engine and users in "
                'memory, or ConcentratedMean(radius, gate="deferred") or ClippedMean(radius)'
            )
        if private is not None and private.shape != (oracle.n_users, oracle.dimension):
            raise InvalidInputError(
                f"the noise was calibrated for vectors of shape {private.shape}, "
                f"got {(oracle.n_users, oracle.dimension)}"
            )
        descent = Descent(self.rounds, self.first_averaged, self.step_size, self.domain, oracle.ridge)
        with jax.enable_x64(True):
            seed = noise.generator().integers(2**63)
            theta_0, key = self.domain.project(jnp.asarray(first)), jax.random.key(seed)
            if private is None:
                assert isinstance(oracle, GradientOracle)
                session = mean.start(noise)
                average = run_session(descent, session, oracle, theta_0, key)
                halted, statement = session.halted, session.finish()
            else:
                draws = private.draw(noise)
                average, state = run_rounds(descent, private, oracle, theta_0, draws, key, progress)
                halted, statement = private.close(state, noise)
            return Solution(np.asarray(theta_0 if halted else average), statement, halted)

    @property
    def first_averaged(self) -> int:
        """The first round whose iterate enters the answer."""
        return min(self.rounds - 1, self.rounds - round(self.averaged_share * self.rounds))


def _steps(step_size: float | FloatArray) -> float | FloatArray:
    if np.ndim(step_size) == 0:
        return positive("step_size", step_size, "give eta")
    steps = np.asarray(step_size, dtype=np.float64)
    if not (np.isfinite(steps) & (steps >= 0)).all():
        raise InvalidInputError("step_size must be 0 or positive in every coordinate")
    return steps


def starting_point(start: FloatArray | None, dimension: int) -> FloatArray:
    """Check where to start; the origin by default."""
    first = np.zeros(dimension) if start is None else np.asarray(start, dtype=np.float64)
    if first.shape != (dimension,):
        raise InvalidInputError(f"start must have shape ({dimension},), got {first.shape}")
    if not np.isfinite(first).all():
        raise InvalidInputError("start must be finite: at another point every user would be null")
    return first
