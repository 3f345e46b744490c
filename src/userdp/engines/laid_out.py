"""Blocks that are laid out once and mapped from disk afterwards, for users that do not fit in memory."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from userdp.engines.layout import Block
from userdp.engines.sources import Source

_SMALL = ("targets", "weights", "usable", "positions", "count")
_NUMBERS = ("n_users", "width", "lanes")


@dataclass(frozen=True)
class LaidOut:
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

    def load(self) -> tuple[Block, ...]:
        """Map the blocks, or lay the users out."""
        kept = self.folder.path / f"{self.number:05d}"
        if kept.exists():
            return tuple(_read(kept, i) for i in range(len(list(kept.glob("*.npz")))))
        found, draft = self.source.load(), kept.with_suffix(".draft")
        try:
            draft.mkdir()
            for i, block in enumerate(found):
                _write(draft, i, block)
            draft.rename(kept)
        except OSError:  # a full disk costs time, not the run
            shutil.rmtree(draft, ignore_errors=True)
        return found


def laid_out(sources: Sequence[Source], within: Path) -> list[Source]:
    """Let sources keep their blocks in a new folder, which is gone when they are."""
    try:
        folder = _Folder(within)
    except OSError:
        return list(sources)
    return [LaidOut(source, folder, number) for number, source in enumerate(sources)]


class _Folder:
    """A folder for its owner's eyes alone, as long as somebody holds on to it."""

    def __init__(self, within: Path) -> None:
        self.path = Path(tempfile.mkdtemp(dir=within, prefix="laid-out-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _write(folder: Path, number: int, block: Block) -> None:
    np.save(folder / f"{number}.npy", block.features)
    numbers = np.array([getattr(block, name) for name in _NUMBERS])
    np.savez(folder / f"{number}.npz", numbers=numbers, **{name: getattr(block, name) for name in _SMALL})


def _read(folder: Path, number: int) -> Block:
    features = np.load(folder / f"{number}.npy", mmap_mode="c")
    with np.load(folder / f"{number}.npz") as rest:
        numbers = dict(zip(_NUMBERS, rest["numbers"].tolist(), strict=True))
        return Block(features, *(rest[name] for name in _SMALL), **numbers)
