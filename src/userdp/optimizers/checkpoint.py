"""Long runs that survive an interruption: every draw and the rounds done so far, in a folder.

Resuming gives the answer that the run would have given: the same noise (:mod:`userdp.mechanisms.recorded`), the rounds
from the last one written down, the gate's noise once. Nothing is paid twice, because nothing is drawn twice.

The folder is as sensitive as the data, and says so: with the noise on disk, answers can be had without it. It is made
readable by its owner alone and emptied when the run is over.
"""

import fcntl
import hashlib
import json
import marshal
import os
import secrets
import shutil
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource
from userdp.mechanisms.recorded import RecordedNoise, write_arrays
from userdp.optimizers.rounds import Carry
from userdp.problems import Domain, Loss

_NAME_FILE = "run.npz"
_NOTICE = (
    "This folder holds the noise of a private release that is not finished yet, and what it computed so far.\n"
    "It is as sensitive as the data. It is emptied when the run is over; delete it if the run is given up:\n"
    "the budget of that run is then spent.\n"
)


class Checkpoint:
    """The folder of one run; a context that no other process can enter meanwhile.

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
            _check_folder(self.folder)
            self._lock = os.open(self.folder / "SENSITIVE", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise InvalidInputError(f"another process works in {self.folder}") from None
        except OSError as error:
            raise InvalidInputError(f"cannot use {self.folder}: {error.strerror}") from None
        os.truncate(self._lock, 0)
        os.pwrite(self._lock, _NOTICE.encode(), 0)
        self.run = _run_name(self.folder)

    def noise(self, source: NoiseSource, users: AnyUsers, *arguments: Any) -> RecordedNoise:
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
        """Remove everything: the run is over, whether it released something or was refused.

        Its name goes first. Draws that are removed while the name stands would be drawn again by whoever resumes, and
        that second answer would find the first one's reservation.
        """
        try:
            (self.folder / _NAME_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise InvalidInputError(f"cannot end the run in {self.folder}: {error.strerror}") from None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
            found = [jnp.asarray(record[f"leaf{i}"]) for i in range(len(leaves))]
            return int(record["done"]), jax.tree.unflatten(tree, found)

    def save(self, done: int, carry: Carry) -> None:
        """Write down what ``done`` rounds left."""
        leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
        write_arrays(self.path, done=np.asarray(done), **leaves)


def run_name(folder: str | os.PathLike[str]) -> str:
    """Return the name of the run in a folder, a random one; the folder is made if it is not there."""
    path = Path(folder)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        return _run_name(path)
    except OSError as error:
        raise InvalidInputError(f"cannot use {folder}: {error.strerror}") from None


def _run_name(folder: Path) -> str:
    file = folder / _NAME_FILE
    _check_folder(folder)
    if not file.exists():
        write_arrays(file, name=np.array(secrets.token_hex(8)))
    with np.load(file) as record:
        return str(record["name"])


def _check_folder(folder: Path) -> None:
    """Refuse a folder of other things: there is the name of a run, or nothing but a notice or half of a name."""
    if not (folder / _NAME_FILE).exists() and any(
        not (path.name.startswith(f".{_NAME_FILE}") or _is_notice(path)) for path in folder.iterdir()
    ):
        raise InvalidInputError(f"{folder} is damaged or is not the folder of a run; give a new folder")


def _is_notice(path: Path) -> bool:
    return path.name == "SENSITIVE" and _NOTICE.encode().startswith(path.read_bytes())


def _fingerprint(users: AnyUsers, arguments: tuple[Any, ...]) -> str:
    """Digest data and arguments; as private as the data."""
    digest = hashlib.sha256()
    parts = (users,) if isinstance(users, Users) else (users.read(i) for i in range(len(users.parts)))
    for part in parts:
        for array in (part.rows, part.offsets, part.targets):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    digest.update(json.dumps([_described(argument) for argument in arguments]).encode())
    return digest.hexdigest()


def _described(value: Any, within: tuple[FunctionType, ...] = ()) -> Any:
    """Write down a public argument in full, the same in every process: what is left out could change unnoticed.

    ``within`` are the functions that are being written down, so that those that call each other come to an end.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        return [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    describe = partial(_described, within=within)
    if is_dataclass(value):
        parts: Any = [describe(getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, list | tuple):
        parts = [describe(item) for item in value]
    elif isinstance(value, FunctionType):
        parts = [value.__name__] if value in within else _described_function(value, (*within, value))
    elif isinstance(value, partial):
        parts = [describe(value.func), describe(value.args), describe(sorted(value.keywords.items()))]
    elif isinstance(value, MethodType):
        parts = [describe(value.__func__), describe(value.__self__)]
    elif hasattr(value, "__wrapped__"):  # by jax.jit, functools.wraps and the like
        parts = [describe(value.__wrapped__)]
    elif isinstance(value, Loss | Domain) or (
        callable(value) and hasattr(value, "__dict__")
    ):  # by somebody else
        parts = sorted((name, describe(part)) for name, part in vars(value).items())
    else:
        parts = []
    return [f"{type(value).__module__}.{type(value).__qualname__}", parts]


def _described_function(function: FunctionType, within: tuple[FunctionType, ...]) -> Any:
    """Write down a function's code and what it refers to: defaults, a closure, numbers and functions of its module."""
    code, describe = function.__code__, partial(_described, within=within)
    around = ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
    told = (bool, int, float, str, tuple, np.ndarray, np.generic, jax.Array, partial)
    return [
        hashlib.sha256(marshal.dumps(code, 2)).hexdigest(),
        describe(function.__defaults__),
        describe(sorted((function.__kwdefaults__ or {}).items())),
        describe([cell.cell_contents for cell in function.__closure__ or ()]),
        [
            (name, describe(one))
            for name, one in around
            if isinstance(one, told)
            or (isinstance(one, FunctionType) and one.__module__ == function.__module__)
        ],
    ]
