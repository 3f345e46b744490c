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

    def exact(self, vectors: Array) -> Any:
        """Reduce one query to what its answer needs, before noise; traceable by JAX. A null user is a row of NaN."""

    def answer(self, state: Any, exact: Any, draw: Any) -> tuple[Any, Array]:
        """Take note of a round and answer it with its noise; traceable by JAX."""

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
        """Return what :meth:`exact` would on all vectors together, and a hint for the next round.

        The hint saves time and changes no number.
        """
