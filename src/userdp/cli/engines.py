"""Where a command computes, and how an interrupted one goes on."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    from userdp.engines import Engine

_PANEL = "Where it runs"


class EngineName(StrEnum):
    """What ``--engine`` may say."""

    local = "local"
    ray = "ray"


class DeviceName(StrEnum):
    """What ``--device`` may say."""

    cpu = "cpu"
    gpu = "gpu"


class StorageName(StrEnum):
    """What ``--storage`` may say."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"


EngineOption: TypeAlias = Annotated[
    EngineName,
    typer.Option(rich_help_panel=_PANEL, help="This machine, or the workers of a Ray cluster; same answer."),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_PANEL,
        show_default=False,
        help="Of the Ray cluster, as in ray://host:10001; without it one is started here.",
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(rich_help_panel=_PANEL, show_default="2", help="How many Ray workers hold the users."),
]
DeviceOption: TypeAlias = Annotated[
    DeviceName | None,
    typer.Option(rich_help_panel=_PANEL, show_default=False, help="cpu or gpu, on this machine."),
]
StorageOption: TypeAlias = Annotated[
    StorageName,
    typer.Option(rich_help_panel=_PANEL, help="Round the features, to train faster on this machine's CPU."),
]
CheckpointFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        rich_help_panel=_PANEL,
        show_default=False,
        help="Folder from which the same command goes on after an interruption, at no further cost. "
        "As sensitive as the data; gone when the command is done.",
    ),
]
Scratch: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--scratch",
        rich_help_panel=_PANEL,
        show_default=False,
        help="Folder to sort the table in and train from, for tables larger than memory; same answer. "
        "As sensitive as the data while the command runs.",
    ),
]


def engine_of(
    name: EngineName,
    address: str | None,
    workers: int | None,
    device: DeviceName | None,
    storage: StorageName,
    scratch: Path | None,
) -> "Engine":
    """Return the engine that the options name."""
    from userdp.engines import LocalEngine, RayEngine

    if name is EngineName.ray:
        if device is not None:
            raise InvalidInputError("--device is for --engine local; Ray's workers compute on CPUs")
        if storage is not StorageName.float32:
            raise InvalidInputError("--storage is for --engine local; Ray's workers read float32")
        return RayEngine(address) if workers is None else RayEngine(address, workers)
    for option, value in (("--address", address), ("--workers", workers)):
        if value is not None:
            raise InvalidInputError(f"{option} goes with --engine ray; leave it out, or pass --engine ray")
    if scratch is not None and storage is not StorageName.float32:
        raise InvalidInputError(
            f"--storage {storage.value} is for users in memory; leave out --scratch or it"
        )
    return LocalEngine(None if device is None else device.value, storage.value)
