"""Private means inside a compiled loop: the noise is drawn ahead, a round is a pure function.

An :class:`InLoopMean` answers one adaptive query per step of a ``jax.lax.scan``. All of its randomness is drawn on the
host before the loop by the noise source, so a round has no side effects, and its answers are those of the
estimator's session on the same draws.

A :class:`ShardedMean` finds a round's exact numbers also where the users' vectors are spread over shards, each of which
answers questions about its own users with integers. Sums of integers do not depend on how users were spread, so the
numbers are the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from jax import Array

from userdp.arrays import IntArray
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.statement import PrivacyStatement

Question: TypeAlias = Callable[..., Any]
"""``question(vectors, *arguments)``: a hashable function of one shard's vectors, traceable by JAX."""


class Shards(Protocol):
    """The users' vectors of one round, wherever they are."""

    def ask(self, question: Question, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Ask every shard; return the shards' answers in their order.

        ``shared`` goes to every shard, ``each[i]`` to shard i, after it.
        """


class CompiledMean(Protocol):
    """What a compiled loop computes with: a pytree.

    Numbers in its leaves may change and nothing is compiled again; what is not in a leaf is part of the program.
    """

    def exact(self, vectors: Array) -> Any:
        """Reduce one query to what its answer needs, before noise; traceable by JAX. A null user is a row of NaN."""

    def answer(self, state: Any, exact: Any, draw: Any) -> tuple[Any, Array]:
        """Take note of a round and answer it with its noise; traceable by JAX."""


@runtime_checkable
class InLoopMean(Protocol):
    """A calibrated mean that can run inside a compiled loop (in float64)."""

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""

    @property
    def shape(self) -> tuple[int, int]:
        """Users and coordinates that the noise was calibrated for."""

    def draw(self, noise: NoiseSource) -> Any:
        """Draw the noise of all rounds: a pytree of arrays with leading axis ``rounds``."""

    def initial_state(self) -> Any:
        """Return what is carried from round to round: a pytree of arrays."""

    @property
    def compiled(self) -> CompiledMean:
        """Return the part of it that enters a compiled loop."""

    def close(self, state: Any, noise: NoiseSource) -> tuple[bool, PrivacyStatement]:
        """Decide at the end: whether the mean halted, and the guarantee.

        Raises
        ------
        NotConcentratedError
            If nothing of the run may leave.
        """


@runtime_checkable
class ShardedMean(InLoopMean, Protocol):
    """An in-loop mean that also answers queries whose vectors are spread over shards."""

    def exact_of_shards(self, shards: Shards, hint: IntArray | None) -> tuple[Any, IntArray | None]:
        """Return what :meth:`CompiledMean.exact` would on all vectors together, and a hint for the next round.

        The hint saves time and changes no number.
        """


def check_shape(vectors: Array, shape: tuple[int, int]) -> None:
    """Refuse, while the loop is compiled, vectors of another shape than the noise was calibrated for."""
    if vectors.shape != shape:
        raise InvalidInputError(f"the noise was calibrated for vectors of shape {shape}, got {vectors.shape}")


def gaussian_rows(noise: NoiseSource, scale: float, rounds: int, dimension: int) -> IntArray:
    """Draw the discrete Gaussian noise of all rounds, a row each."""
    return noise.discrete_gaussian(scale, rounds * dimension).reshape(rounds, dimension)


def in_steps(x: Array, step: Array | float) -> Array:
    """Divide by the lattice's step, correctly rounded as NumPy does; not finite where x is not.

    XLA would multiply by the reciprocal of a constant, and of any scalar: half-way cases would then round to
    another lattice point than in a session. So the divisor is made to depend on x, which changes no finite number.
    """
    return x / (step + 0.0 * x)
