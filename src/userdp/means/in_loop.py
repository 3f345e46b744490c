"""Private means inside a compiled loop: the noise is drawn ahead, a round is a pure function.

An :class:`InLoopMean` answers one adaptive query per step of a ``jax.lax.scan``. All of its randomness is drawn on the
host before the loop by the noise source, so a round has no side effects, and its answers are those of the
estimator's session on the same draws.
"""

from typing import Any, Protocol, runtime_checkable

from jax import Array

from userdp.arrays import IntArray
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.statement import PrivacyStatement


@runtime_checkable
class InLoopMean(Protocol):
    """A calibrated mean that can run inside a compiled loop (in float64)."""

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""

    def draw(self, noise: NoiseSource) -> Any:
        """Draw the noise of all rounds: a pytree of arrays with leading axis ``rounds``."""

    def initial_state(self) -> Any:
        """Return what is carried from round to round: a pytree of arrays."""

    def round(self, state: Any, vectors: Array, draw: Any) -> tuple[Any, Array]:
        """Answer one query; traceable by JAX. A null user is a row of NaN."""

    def close(self, state: Any, noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """Decide at the end: whether the mean halted, and the guarantee.

        Raises
        ------
        NotConcentratedError
            If nothing of the run may leave.
        """


def check_shape(vectors: Array, n_users: int, dimension: int) -> None:
    """Refuse, while the loop is compiled, vectors of another shape than the noise was calibrated for."""
    if vectors.shape != (n_users, dimension):
        raise InvalidInputError(
            f"the noise was calibrated for vectors of shape {(n_users, dimension)}, got {vectors.shape}"
        )


def gaussian_rows(noise: NoiseSource, scale: float, rounds: int, dimension: int) -> IntArray:
    """Draw the discrete Gaussian noise of all rounds, a row each."""
    return noise.discrete_gaussian(scale, rounds * dimension).reshape(rounds, dimension)


def in_steps(x: Array, step: Array | float) -> Array:
    """Divide by the lattice's step, correctly rounded as NumPy does; not finite where x is not.

    XLA would multiply by the reciprocal of a constant, and of any scalar: half-way cases would then round to
    another lattice point than in a session. So the divisor is made to depend on x, which changes no finite number.
    """
    return x / (step + 0.0 * x)
