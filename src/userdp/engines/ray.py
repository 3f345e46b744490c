"""Users spread over the workers of a Ray cluster; one trusted place asks, the workers compute.

Each worker is an actor that holds its shards in memory. Per round theta and a centre go out, and counts and integer
sums come back (:mod:`userdp.means.sharded`); other users' vectors travel only where a friend count is open.

A question is a function of its shard, theta and its arguments alone. So a worker that died, or whose machine is gone,
or that does not answer in time, is replaced by one that loads the same shards and is asked again: the answer is the
same, no noise is drawn in between, and the budget does not know of it.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pickle import PicklingError
from typing import Any

import jax

from userdp.data.parts import AnyUsers
from userdp.engines.local import Objective
from userdp.engines.shards import (
    Moment,
    Question,
    Shard,
    ShardedOracle,
    Workers,
    sharded_oracle,
)
from userdp.engines.sources import Source
from userdp.errors import EngineError, InvalidInputError


@dataclass
class Traffic:
    """How much has travelled between the trusted place and the workers, and how often workers were replaced."""

    bytes_sent: int = 0
    bytes_received: int = 0
    questions: int = 0
    replaced: int = 0


@dataclass(frozen=True)
class RayEngine:
    """Spread users over a Ray cluster.

    Answers are bit for bit those of the local engine for any number of workers, on machines whose processors
    have the same instructions. Workers see the rows of their users, and the trusted place sees sums that carry no noise
    yet: the cluster, its network and its logs are to be trusted like the data.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, as in ``"ray://host:10001"`` or ``"auto"``; none starts one on this machine.
    workers : int
        How many actors hold the users; each takes one CPU.
    patience : float
        Seconds after which a worker that does not answer is replaced.
    attempts : int
        How often in a row the workers of one question are replaced before the run is given up.
    """

    address: str | None = None
    workers: int = 2
    patience: float = 600.0
    attempts: int = 20
    traffic: Traffic = field(default_factory=Traffic, compare=False)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidInputError(f"workers must be at least 1, got {self.workers}")
        if not self.patience > 0:
            raise InvalidInputError(f"patience must be a positive number of seconds, got {self.patience!r}")

    def oracle(
        self,
        loss: Objective,
        users: AnyUsers,
        *,
        dimension: int | None = None,
        min_items: int = 1,
        group_size: int = 1,
    ) -> ShardedOracle:
        """Send the users to the workers; stored users are read there, from storage that all machines share."""
        _connect(self.address)

        def start(sources: Sequence[Source], plain: Objective, has_targets: bool) -> Workers:
            return RayWorkers(self, sources, plain, has_targets, group_size)

        return sharded_oracle(
            loss,
            users,
            start,
            n_shards=self.workers,
            dimension=dimension,
            min_items=min_items,
            group_size=group_size,
        )

    def check(self, users: AnyUsers) -> None:
        """Reach the cluster."""
        _connect(self.address)


class RayWorkers:
    """The actors of one oracle, and which shards each holds."""

    def __init__(
        self,
        engine: RayEngine,
        sources: Sequence[Source],
        loss: Objective,
        has_targets: bool,
        group_size: int,
    ) -> None:
        self._engine = engine
        self._arguments = loss, has_targets, group_size
        n = min(engine.workers, len(sources))
        self._held = [list(range(worker, len(sources), n)) for worker in range(n)]
        self._sources = sources
        self._actors = [self._start(worker) for worker in range(n)]

    def answers(
        self, moment: Moment, question: Question, shared: tuple[Any, ...], each: Sequence[Any] | None
    ) -> list[Any]:
        """Return the answers of all shards, in their order, whatever happens to workers on the way."""
        found: dict[int, Any] = {}
        waiting = list(range(len(self._actors)))
        for attempt in range(self._engine.attempts):
            waiting = self._ask(waiting, found, moment, question, shared, each)
            if not waiting:
                return [found[shard] for shard in range(len(self._sources))]
            time.sleep(min(0.1 * 2**attempt, 10.0))
            for worker in waiting:
                self._replace(worker)
        raise EngineError(
            f"workers were lost {self._engine.attempts} times in a row; look at the cluster and resume the run"
        )

    def _ask(
        self,
        workers: Iterable[int],
        found: dict[int, Any],
        moment: Moment,
        question: Question,
        shared: tuple[Any, ...],
        each: Sequence[Any] | None,
    ) -> list[int]:
        """Ask some workers at once; return those that did not answer."""
        import ray

        pending = {}
        for worker in workers:
            own = [() if each is None else (each[shard],) for shard in self._held[worker]]
            self._engine.traffic.bytes_sent += _bytes((moment.theta, moment.key, shared, own))
            pending[worker] = self._actors[worker].answer.remote(moment, question, shared, own)
        self._engine.traffic.questions += 1
        deadline, lost = time.monotonic() + self._engine.patience, []
        for worker, reference in pending.items():
            try:
                answers = ray.get(reference, timeout=max(deadline - time.monotonic(), 0.01))
            except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError, ray.exceptions.ObjectLostError,
                    ray.exceptions.GetTimeoutError, ray.exceptions.WorkerCrashedError,
                    ray.exceptions.NodeDiedError):  # fmt: skip
                lost.append(worker)
                continue
            self._engine.traffic.bytes_received += _bytes(answers)
            found.update(zip(self._held[worker], answers, strict=True))
        return lost

    def _replace(self, worker: int) -> None:
        import ray

        ray.kill(self._actors[worker], no_restart=True)
        self._actors[worker] = self._start(worker)
        self._engine.traffic.replaced += 1

    def _start(self, worker: int) -> Any:
        import ray

        sources = [self._sources[shard] for shard in self._held[worker]]
        try:
            return ray.remote(num_cpus=1)(_Worker).remote(sources, *self._arguments)
        except (TypeError, PicklingError):
            raise InvalidInputError(
                "the loss cannot be sent to the workers; define its function in a module"
            ) from None


class _Worker:
    """Some shards in another process."""

    def __init__(
        self, sources: Sequence[Source], loss: Objective, has_targets: bool, group_size: int
    ) -> None:
        jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]  # answers are those of the local engine on a CPU
        self._shards = [
            Shard(source, loss, has_targets, held=True, group_size=group_size) for source in sources
        ]

    def answer(
        self, moment: Moment, question: Question, shared: tuple[Any, ...], own: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        return [
            shard.answer(moment, question, *shared, *more)
            for shard, more in zip(self._shards, own, strict=True)
        ]


def _connect(address: str | None) -> None:
    try:
        import ray
    except ImportError:
        raise InvalidInputError("the Ray engine needs Ray: pip install 'userdp[ray]'") from None
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EngineError(f"cannot reach a Ray cluster at {address!r}: {type(error).__name__}") from None


def _bytes(message: Any) -> int:
    """Count the numbers of a message; what Ray adds to it is left out."""
    return sum(getattr(leaf, "nbytes", 8) for leaf in jax.tree.leaves(message))
