"""Private means inside a compiled loop: the noise is drawn ahead, a round is a pure function.

An :class:`InLoopMean` answers one adaptive query per step of a ``jax.lax.scan``. All of its randomness is drawn on the
host before the loop by the noise source, so a round has no side effects, and its answers are those of the
estimator's session on the same draws.
"""

from typing import Any, Protocol, runtime_checkable

from jax import Array

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
