"""What an engine is, and the one that runs on this machine."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import jax

from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.engines.local import GradientOracle, Objective, device_named, local_oracle
from userdp.engines.shards import ShardedOracle, streamed_oracle
from userdp.errors import InvalidInputError

Oracle: TypeAlias = GradientOracle | ShardedOracle
Device: TypeAlias = Literal["cpu", "gpu"]
Storage: TypeAlias = Literal["float32", "float16", "int8"]


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

    def check(self, users: AnyUsers) -> None:
        """Refuse users that :meth:`oracle` would refuse, and to work without what it needs: before noise is drawn."""


def checked_engine(engine: Any, users: AnyUsers) -> Engine:
    """Return an engine that can work on these users."""
    if not (hasattr(engine, "oracle") and hasattr(engine, "check")):
        raise InvalidInputError(
            f"engine must be a userdp.engines.LocalEngine or RayEngine, got {type(engine).__name__}"
        )
    checked: Engine = engine
    checked.check(users)
    return checked


def storage_of(engine: Engine | None) -> Storage:
    """How rows are rounded. Engines give the same answer but for this."""
    return engine.storage if isinstance(engine, LocalEngine) else "float32"


@dataclass(frozen=True)
class LocalEngine:
    """One machine: users in memory in one compiled loop, or stored users part by part.

    Parameters
    ----------
    device : str, optional
        ``"cpu"`` or ``"gpu"``; what JAX prefers by default.
    storage : str
        ``"float16"`` rounds the features to eleven bits and reads half as many bytes, for users in memory on a CPU with
        ``userdp[fast]``. Features of 6e-5 to 65,504 keep a relative precision of 2^-11, smaller ones an absolute one
        of 3e-8; a user with a larger one is null. ``"int8"`` reads a quarter: every feature becomes one of 255 whole
        multiples of a 127th of the largest that its user has in that column, and predictions and gradients are computed
        to sixteen bits. The guarantee is the same (``docs/proofs/dp_sgd.md``).
    """

    device: Device | None = None
    storage: Storage = "float32"

    def __post_init__(self) -> None:
        if self.device not in (None, "cpu", "gpu"):
            raise InvalidInputError(f'device must be "cpu" or "gpu", got {self.device!r}')
        if self.storage not in get_args(Storage):
            raise InvalidInputError(f'storage must be "float32", "float16" or "int8", got {self.storage!r}')
        if self.storage != "float32" and self.device == "gpu":
            raise InvalidInputError(f'storage="{self.storage}" is for a CPU: leave device or storage out')

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
        self.check(users)
        if not isinstance(users, Users):
            return streamed_oracle(
                loss, users, dimension=dimension, min_items=min_items, group_size=group_size
            )
        return local_oracle(
            loss,
            users,
            dimension=dimension,
            min_items=min_items,
            device="cpu" if self.storage != "float32" else self.device,
            group_size=group_size,
            storage=self.storage,
        )

    def check(self, users: AnyUsers) -> None:
        """Refuse a device that is not there, and what is for users in memory alone."""
        device_named(self.device)
        if isinstance(users, Users):
            return
        if self.storage != "float32":
            raise InvalidInputError(
                f'storage="{self.storage}" is for users in memory; read them with load_users, or leave storage out'
            )
        if self.device not in (None, jax.default_backend()):
            raise InvalidInputError(
                f"stored users are computed where JAX prefers, on the {jax.default_backend()}; set the environment "
                f"variable JAX_PLATFORMS for another device, or read them with load_users"
            )
