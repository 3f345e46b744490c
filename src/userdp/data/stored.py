"""Users on disk, sorted and cut into parts: for tables that are larger than memory.

A folder of ``StoredUsers`` holds the table's rows. It is as sensitive as the table itself: it is made readable by its
owner alone, and whoever may not read the table must not read it either.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from userdp.data.parts import Part
from userdp.data.users import Users
from userdp.errors import InvalidInputError

FORMAT, VERSION = "userdp-users", 2


@dataclass(frozen=True)
class StoredUsers:
    """Users in a folder, part by part; see :func:`store_users`.

    Attributes
    ----------
    folder : Path
        Where the parts are.
    feature_names : tuple of str
        One per column of the rows.
    has_targets : bool
        Whether rows have targets.
    booleans : tuple of bool
        Which features are 0 or 1 by the column's type or because its categories were declared.
    classes : tuple, optional
        The declared classes, whose places in this order are the targets; none where targets are numbers.
    parts : tuple of Part
        The users, in the order of their ids, or in a secret random order if they were stored for groups.
    groups_of : int
        The one size of groups that they may be trained in; 1 where their order is that of the ids.
    """

    folder: Path
    feature_names: tuple[str, ...]
    has_targets: bool
    booleans: tuple[bool, ...]
    classes: tuple[Any, ...] | None
    parts: tuple[Part, ...]
    groups_of: int = 1

    @property
    def n_users(self) -> int:
        """How many users there are, null ones included."""
        return sum(part.n_users for part in self.parts)

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return len(self.feature_names)

    def read(self, part: int) -> Users:
        """Read one part into memory, its rows in the type they are stored in.

        Raises
        ------
        InvalidInputError
            If a file of it is missing or damaged.
        """
        try:
            return Users(**{name: np.load(self.file(part, name)) for name in self._arrays})
        except (OSError, ValueError, EOFError):
            raise self._incomplete() from None

    @property
    def _arrays(self) -> tuple[str, ...]:
        return ("rows", "offsets", "targets") if self.has_targets else ("rows", "offsets")

    def _incomplete(self) -> InvalidInputError:
        return InvalidInputError(
            f"the users stored in {self.folder} are not whole: a part is missing or damaged; store them again"
        )

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "StoredUsers":
        """Open a folder that :func:`store_users` has written.

        Raises
        ------
        InvalidInputError
            If it is not such a folder, or parts are missing.
        """
        try:
            record = json.loads((Path(folder) / "users.json").read_text(encoding="utf-8"))
            if record["format"] != FORMAT or record["version"] > VERSION:
                raise ValueError
            stored = cls(
                Path(folder),
                feature_names=tuple(record["feature_names"]),
                has_targets=bool(record["has_targets"]),
                booleans=tuple(record["booleans"]),
                classes=None if record["classes"] is None else tuple(record["classes"]),
                parts=tuple(Part(**part) for part in record["parts"]),
                groups_of=int(record["groups_of"]),
            )
        except OSError as error:
            raise InvalidInputError(f"cannot read stored users in {folder}: {error.strerror}") from None
        except (KeyError, TypeError, ValueError):
            raise InvalidInputError(f"{folder} holds no users that this userdp can read") from None
        for part in range(len(stored.parts)):
            if not all(stored.file(part, name).exists() for name in stored._arrays):
                raise stored._incomplete()
        return stored

    def file(self, part: int, name: str) -> Path:
        """Return the file of one array of a part: rows, offsets or targets."""
        return self.folder / f"part-{part:05d}.{name}.npy"
