"""Users that are laid out once and mapped from disk afterwards, for users that do not fit in memory."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from userdp.engines.layout import Block, LaidOut, Layout, Packed, SideBySide
from userdp.engines.sources import Source

_KINDS = {kind.__name__: kind for kind in (Block, Packed, SideBySide)}


@dataclass(frozen=True)
class KeptOnDisk:
    """A source that writes its blocks down when they are first asked for, if there is room on the disk.

    Afterwards their features are mapped into memory, not read: what computes with them finds them there without a copy.
    """

    source: Source
    folder: "_Folder"
    number: int

    @property
    def n_users(self) -> int:
        """How many users the shard has."""
        return self.source.n_users

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return self.source.n_features

    def load(self, lay_out: Layout) -> LaidOut:
        """Map the blocks, or lay the users out."""
        kept = self.folder.path / f"{self.number:05d}"
        if kept.exists():
            return tuple(_read(kept, i) for i in range(len(list(kept.glob("*.npz")))))
        found, draft = self.source.load(lay_out), kept.with_suffix(".draft")
        try:
            draft.mkdir()
            for i, block in enumerate(found):
                _write(draft, i, block)
            draft.rename(kept)
        except OSError:  # a full disk costs time, not the run
            shutil.rmtree(draft, ignore_errors=True)
        return found


def kept_on_disk(sources: Sequence[Source], within: Path) -> list[Source]:
    """Let sources keep their blocks in a new folder, which is gone when they are."""
    try:
        folder = _Folder(within)
    except OSError:
        return list(sources)
    return [KeptOnDisk(source, folder, number) for number, source in enumerate(sources)]


class _Folder:
    """A folder for its owner's eyes alone, as long as somebody holds on to it."""

    def __init__(self, within: Path) -> None:
        self.path = Path(tempfile.mkdtemp(dir=within, prefix="laid-out-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _write(folder: Path, number: int, block: Block | Packed | SideBySide) -> None:
    np.save(folder / f"{number}.npy", block.features)
    rest = {field.name: getattr(block, field.name) for field in fields(block) if field.name != "features"}
    np.savez(folder / f"{number}.npz", kind=type(block).__name__, **rest)


def _read(folder: Path, number: int) -> Block | Packed | SideBySide:
    features = np.load(folder / f"{number}.npy", mmap_mode="c")
    with np.load(folder / f"{number}.npz") as rest:
        kind = _KINDS[str(rest["kind"])]
        found = {
            field.name: int(rest[field.name]) if field.metadata.get("static") else rest[field.name]
            for field in fields(kind)[1:]
        }
    block: Block | Packed | SideBySide = kind(features, **found)
    return block
