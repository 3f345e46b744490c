"""What an engine is, and the one that runs on this machine."""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.engines.local import GradientOracle, Objective, local_oracle
from userdp.engines.shards import ShardedOracle, streamed_oracle
from userdp.errors import InvalidInputError

Oracle: TypeAlias = GradientOracle | ShardedOracle
Device: TypeAlias = Literal["cpu", "gpu"]


class Engine(Protocol):
    """Who computes the users' vectors. It never clips, weighs or adds noise by itself."""

    def oracle(
        self,
        loss: Objective,
        users: AnyUsers,
        *,
        dimension: int | None = None,
        min_items: int = 1,
        group_size: int = 1,
    ) -> Oracle:
        """Take in the users and return what an optimizer may ask.

        With a ``group_size``, so many users that follow each other stand for one.
        """


@dataclass(frozen=True)
class LocalEngine:
    """One machine: users in memory in one compiled loop, or stored users part by part.

    Parameters
    ----------
    device : str, optional
        ``"cpu"`` or ``"gpu"``; what JAX prefers by default.
    """

    device: Device | None = None

    def __post_init__(self) -> None:
        if self.device not in (None, "cpu", "gpu"):
            raise InvalidInputError(f'device must be "cpu" or "gpu", got {self.device!r}')

    def oracle(
        self,
        loss: Objective,
        users: AnyUsers,
        *,
        dimension: int | None = None,
        min_items: int = 1,
        group_size: int = 1,
    ) -> Oracle:
        """Lay out users in memory, or read them as they are needed."""
        if not isinstance(users, Users):
            return streamed_oracle(
                loss, users, dimension=dimension, min_items=min_items, group_size=group_size
            )
        return local_oracle(
            loss,
            users,
            dimension=dimension,
            min_items=min_items,
            device=self.device,
            group_size=group_size,
        )
