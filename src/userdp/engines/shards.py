"""Users in several shards, each of which answers questions about its own users' gradients.

An engine computes per-user vectors and evaluates the questions it is handed; it decides nothing. What is asked, what
the answers mean, gates, noise and accounting stay with whoever holds the :class:`ShardedOracle`. A shard's answers
are as private as its users.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from userdp.arrays import BoolArray, FloatArray
from userdp.data.parts import AnyUsers, UsersInParts
from userdp.engines.groups import average, members, n_groups
from userdp.engines.laid_out import kept_on_disk
from userdp.engines.layout import LaidOut, widths
from userdp.engines.local import (
    Objective,
    check_targets,
    evaluated,
    gradients_of,
    layout_for,
    n_parameters,
    without_ridge,
)
from userdp.engines.sources import Source, sources_of
from userdp.programs import compiled

Question: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Moment:
    """Where the users' gradients are asked for: theta, and the key of this round's random smoothing."""

    theta: FloatArray
    key: NDArray[np.uint32]


@dataclass(frozen=True)
class OnHost:
    """A question that is answered by NumPy, and sees nobody but the shard's users."""

    question: Question

    def __call__(self, vectors: FloatArray, *arguments: Any) -> Any:
        """Answer it."""
        return self.question(vectors, *arguments)


class Shard:
    """Some users and their loss.

    Parameters
    ----------
    held : bool
        Whether the users stay in memory between rounds, or are loaded again for each.
    group_size : int
        So many users that follow each other stand for one.
    """

    def __init__(
        self, source: Source, loss: Objective, has_targets: bool, *, held: bool, group_size: int = 1
    ) -> None:
        self._source, self._held, self._group_size = source, held, group_size
        on_gpu = jax.default_backend() == "gpu"
        self._gradients = gradients_of(loss, has_targets, on_gpu)
        self._lay_out = layout_for(loss, source.n_features, np.float32, on_gpu)
        self._data: LaidOut | None = None
        self._is_real: BoolArray = np.zeros(0, bool)
        self._moment: Moment | None = None
        self._vectors: Array | None = None

    def answer(self, moment: Moment, question: Question, *arguments: Any) -> Any:
        """Evaluate a question on the users' gradients at a moment; arrays in and out are NumPy's.

        Among the vectors are null ones that belong to nobody: they change no count and no sum, and leave few shapes
        to be compiled.
        """
        with jax.enable_x64(True):
            vectors = self._vectors_at(moment)
            if isinstance(question, OnHost):
                real = np.asarray(vectors, np.float64)[: len(self._is_real)][self._is_real]
                return question(real, *arguments)
            return jax.tree.map(np.asarray, _evaluate(question, vectors, *arguments))

    def _vectors_at(self, moment: Moment) -> Array:
        if self._vectors is None or not _is_same(self._moment, moment):
            data = self._load() if self._data is None else self._data
            key = jax.random.wrap_key_data(jnp.asarray(moment.key))
            theta = jnp.asarray(moment.theta)
            found = [np.asarray(evaluated(self._gradients, (block,), theta, key)) for block in data]
            is_real = np.concatenate([np.arange(b.n_users) < int(b.count) for b in data])
            if self._group_size > 1:
                groups = members(data, self._group_size)
                found = [np.asarray(_average(_stacked(found), groups))]
                is_real = np.ones(len(groups), bool)
            self._vectors, self._is_real, self._moment = _stacked(found), is_real, moment
        return self._vectors

    def _load(self) -> LaidOut:
        # Nobody writes to what a source returns, so it need not be copied.
        place = partial(jax.device_put, may_alias=True)
        data: LaidOut = jax.tree.map(place, self._source.load(self._lay_out))
        if self._held:
            self._data = data
        return data


class Workers(Protocol):
    """Whoever runs the shards: this process, or others."""

    def answers(
        self, moment: Moment, question: Question, shared: tuple[Any, ...], each: Sequence[Any] | None
    ) -> list[Any]:
        """Return the answers of all shards, in their order."""


class InTurn:
    """Run the shards one after the other in this process."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def answers(
        self, moment: Moment, question: Question, shared: tuple[Any, ...], each: Sequence[Any] | None
    ) -> list[Any]:
        """Return the answers of all shards, in their order."""
        own = [()] * len(self._shards) if each is None else [(argument,) for argument in each]
        return [
            shard.answer(moment, question, *shared, *more)
            for shard, more in zip(self._shards, own, strict=True)
        ]


@dataclass(frozen=True)
class AtMoment:
    """The users' vectors of one round, wherever they are: what a mean may ask questions of."""

    workers: Workers
    moment: Moment

    def ask(self, question: Question, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Ask every shard; ``shared`` goes to all of them, ``each[i]`` to shard i, after it."""
        return self.workers.answers(self.moment, question, shared, each)


@dataclass(frozen=True)
class ShardedOracle:
    """What an optimizer may ask of users in shards: questions about their gradients at a point.

    Attributes
    ----------
    workers : Workers
        Who answers.
    ridge, ridge_centre : float or array, array
        A public (ridge/2)|theta - ridge_centre|^2, as in :class:`~userdp.engines.GradientOracle`.
    n_users, dimension : int
        All shards' users, and coordinates of theta.
    """

    workers: Workers
    ridge: float | FloatArray
    n_users: int
    dimension: int
    ridge_centre: FloatArray | None = None

    def at(self, theta: FloatArray, key: NDArray[np.uint32]) -> AtMoment:
        """Return the users' gradients at one point, to be asked about."""
        return AtMoment(self.workers, Moment(theta, key))

    def evaluate(self, theta: FloatArray) -> FloatArray:
        """Return all users' gradients at one point, shard after shard; private."""
        return np.concatenate(self.ask(theta, as_they_are))

    def ask(self, theta: FloatArray, question: Question, *arguments: Any) -> list[Any]:
        """Ask ``question(gradients, *arguments)`` of each shard's users' gradients at one point; private.

        Nothing but the answers travels.
        """
        with jax.enable_x64(True):
            key = np.asarray(jax.random.key_data(jax.random.key(0)))
        return self.at(np.asarray(theta, np.float64), key).ask(OnHost(question), *arguments)


def sharded_oracle(
    loss: Objective,
    users: AnyUsers,
    start_workers: Callable[[Sequence[Source], Objective, bool], Workers],
    *,
    n_shards: int = 1,
    dimension: int | None = None,
    min_items: int = 1,
    group_size: int = 1,
) -> ShardedOracle:
    """Cut users into shards and let ``start_workers(sources, loss, has_targets)`` run them."""
    plain, ridge = without_ridge(loss)
    check_targets(plain, users.has_targets)
    dimension = n_parameters(plain, users.n_features, dimension)
    count = n_groups(users.n_users, group_size)
    sources = sources_of(users, min_items, n_shards, group_size)
    workers = start_workers(sources, plain, users.has_targets)
    return ShardedOracle(workers, ridge, count, dimension)


def streamed_oracle(
    loss: Objective,
    users: UsersInParts,
    *,
    dimension: int | None = None,
    min_items: int = 1,
    group_size: int = 1,
) -> ShardedOracle:
    """Return the oracle of users on disk, who are read part by part in every round.

    Memory holds one part, and one vector of each user. Beside the users, the disk holds their rows as they are laid
    out, in float32, as long as the oracle lives.
    """

    def in_turn(sources: Sequence[Source], plain: Objective, has_targets: bool) -> Workers:
        kept = kept_on_disk(sources, users.folder)
        return InTurn(
            [Shard(source, plain, has_targets, held=False, group_size=group_size) for source in kept]
        )

    return sharded_oracle(
        loss, users, in_turn, dimension=dimension, min_items=min_items, group_size=group_size
    )


_average = compiled()(average)


@compiled(0)
def _evaluate(question: Question, vectors: Array, *arguments: Any) -> Any:
    return question(vectors, *arguments)


def as_they_are(vectors: FloatArray) -> FloatArray:
    """Ask for the vectors themselves."""
    return vectors


def _stacked(parts: Sequence[NDArray[Any]]) -> Array:
    """Stack vectors, and null ones up to one of a few sizes."""
    n = sum(map(len, parts))
    room = np.full((int(widths(n)[-1]), parts[0].shape[1]), np.nan, parts[0].dtype)
    np.concatenate(parts, out=room[:n])
    return jnp.asarray(room)


def _is_same(one: Moment | None, other: Moment) -> bool:
    return (
        one is not None
        and one.theta.tobytes() == other.theta.tobytes()
        and one.key.tobytes() == other.key.tobytes()
    )
