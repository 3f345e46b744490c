"""Long runs that survive an interruption: every draw and the rounds done so far, in a folder.

Resuming gives the answer that the run would have given: the same noise (:mod:`userdp.mechanisms.recorded`), the rounds
from the last one written down, the gate's noise once. Nothing is paid twice, because nothing is drawn twice.

The folder is as sensitive as the data, and says so: with the noise on disk, answers can be had without it. It is made
readable by its owner alone and emptied when the run is over.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from userdp.data.stored import StoredUsers
from userdp.data.users import Users
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource
from userdp.mechanisms.recorded import RecordedNoise, write_arrays
from userdp.optimizers.rounds import Carry

_NOTICE = (
    "This folder holds the noise of a private release that is not finished yet, and what it computed so far.\n"
    "It is as sensitive as the data. It is emptied when the run is over; delete it if the run is given up:\n"
    "the budget of that run is then spent.\n"
)


class Checkpoint:
    """The folder of one run.

    Parameters
    ----------
    folder : path
        A new folder, or that of an interrupted run on the same data with the same arguments.
    every : int
        Rounds between two states on disk.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int = 50) -> None:
        if every < 1:
            raise InvalidInputError(f"every must be at least 1 round, got {every}")
        self.folder, self.every, self._runs = Path(folder), every, 0
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(self.folder / "SENSITIVE", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInputError(f"another process works in {self.folder}") from None
        except OSError as error:
            raise InvalidInputError(f"cannot use {self.folder}: {error.strerror}") from None
        os.truncate(self._lock, 0)
        os.pwrite(self._lock, _NOTICE.encode(), 0)
        token = self.folder / "run.npz"
        if not token.exists():
            if any(self.folder.glob("draw-*")):
                raise InvalidInputError(
                    f"{self.folder} is damaged: it has draws, but does not say of which run"
                )
            write_arrays(token, token=np.array(secrets.token_hex(8)))
        with np.load(token) as record:
            self.token = str(record["token"])

    def noise(self, source: NoiseSource, users: Users | StoredUsers, *arguments: Any) -> RecordedNoise:
        """Return a source that repeats this run's draws, if data and arguments are those of this run.

        Raises
        ------
        InvalidInputError
            If they are not: the same noise on other data would show the difference.
        """
        digest, file = _fingerprint(users, arguments), self.folder / "data.npz"
        if file.exists():
            with np.load(file) as record:
                if str(record["digest"]) != digest:
                    raise InvalidInputError(
                        f"{self.folder} belongs to a run on other data or with other arguments; "
                        "give a new folder, which is a new release"
                    )
        else:
            write_arrays(file, digest=np.array(digest))
        return RecordedNoise(source, self.folder)

    def progress(self) -> "RoundFile":
        """Return where the next descent of this run keeps its rounds."""
        self._runs += 1
        return RoundFile(self.folder / f"rounds-{self._runs:03d}.npz", self.every)

    def finish(self) -> None:
        """Remove everything: the run is over, whether it released something or was refused."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


@dataclass(frozen=True)
class RoundFile:
    """The last rounds of one descent on disk."""

    path: Path
    every: int

    def load(self, like: Carry) -> tuple[int, Carry]:
        """Return the number of rounds done and what they left."""
        if not self.path.exists():
            return 0, like
        leaves, tree = jax.tree.flatten(like)
        with np.load(self.path) as record:
            return int(record["done"]), tree.unflatten(
                [jnp.asarray(record[f"leaf{i}"]) for i in range(len(leaves))]
            )

    def save(self, done: int, carry: Carry) -> None:
        """Write down what ``done`` rounds left."""
        leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
        write_arrays(self.path, done=np.asarray(done), **leaves)


def _fingerprint(users: Users | StoredUsers, arguments: tuple[Any, ...]) -> str:
    """Digest data and arguments; as private as the data."""
    digest = hashlib.sha256()
    parts = (users,) if isinstance(users, Users) else (users.read(i) for i in range(len(users.parts)))
    for part in parts:
        for array in (part.rows, part.offsets, part.targets):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    # Functions are written with their address, which changes from process to process.
    words = [re.sub(r" at 0x[0-9a-f]+", "", repr(argument)) for argument in arguments]
    digest.update(json.dumps(words).encode())
    return digest.hexdigest()
