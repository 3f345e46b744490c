"""Users that come in parts, one part in memory at a time, and what may be done to them part by part.

Whatever is done here is done to each user alone, so it does not matter how users are cut into parts: in memory, where
all users are one part, the result is the same bit for bit.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from userdp.arrays import IntArray
from userdp.data.users import Users

# About so many numbers are changed at a time.
_PIECE = 2**20


@dataclass(frozen=True)
class Part:
    """Consecutive users: where they begin in the whole data, and how many they are.

    How many rows they have is None where nobody has counted.
    """

    first_user: int
    n_users: int
    n_rows: int | None = None


class UsersInParts(Protocol):
    """Users that are read part by part, the same at every reading."""

    @property
    def folder(self) -> Path:
        """Where they are; as sensitive as they are."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Who is in which part."""

    @property
    def n_users(self) -> int:
        """How many users there are, null ones included."""

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""

    @property
    def has_targets(self) -> bool:
        """Whether rows have targets."""

    @property
    def groups_of(self) -> int:
        """The one size of groups that they may be trained in; 1 where their order is that of the ids."""

    def read(self, part: int) -> Users:
        """Read one part into memory."""


AnyUsers: TypeAlias = Users | UsersInParts
Change: TypeAlias = Callable[[Users], Users]


def changed(users: AnyUsers, change: Change) -> AnyUsers:
    """Change users' rows and targets, at once in memory, or whenever a part is read.

    ``change`` must treat each user alone and keep their number. It travels to other processes, so it is made of
    functions and classes of modules.

    Examples
    --------
    >>> users = Users.from_rows([[1.0], [2.0]], groups=["ann", "bob"])
    >>> changed(users, lambda some: Users(some.rows + 1, some.offsets)).rows.tolist()
    [[2.0], [3.0]]
    """
    return change(users) if isinstance(users, Users) else _Changed(users, change)


def capped(users: AnyUsers, max_items: int, generator: np.random.Generator) -> AnyUsers:
    """Sample at most ``max_items`` of each user's own rows; from disk the same rows at every reading."""
    if isinstance(users, Users):
        return users.capped(max_items, generator)
    generators = []
    for part in users.parts:
        generators.append(deepcopy(generator))
        assert part.n_rows is not None
        generator.random(part.n_rows)  # what the part's own rows draw
    return _Capped(users, max_items, tuple(generators))


def taken(users: AnyUsers, chosen: IntArray) -> AnyUsers:
    """Return some of the users, in the order they are in.

    Examples
    --------
    >>> users = Users.from_rows([[1.0], [2.0], [3.0]], groups=["ann", "bob", "eve"])
    >>> taken(users, np.array([2, 0])).rows.tolist()
    [[1.0], [3.0]]
    """
    chosen = np.sort(chosen)
    if isinstance(users, Users):
        return users.take(chosen)
    firsts = [part.first_user for part in users.parts]
    members = np.split(chosen, np.searchsorted(chosen, firsts[1:]))
    here = tuple((i, some - firsts[i]) for i, some in enumerate(members) if len(some))
    return _Taken(users, here)


def pieces(users: UsersInParts, part: int) -> Iterator[Users]:
    """Read one part, and go through its users a few at a time: what is computed of them then stays small."""
    if isinstance(users, _Changed):
        for piece in pieces(users.users, part):
            yield users.change(piece)
        return
    whole = users.read(part)
    rows = max(1, _PIECE // max(1, whole.n_features))
    borders = np.searchsorted(whole.offsets, np.arange(0, whole.offsets[-1], rows))
    for first, last in pairwise(np.unique([*borders, whole.n_users])):
        yield whole.between(int(first), int(last))


@dataclass(frozen=True)
class _Derived:
    """Other users' parts, with something done to them when they are read."""

    users: UsersInParts

    def read(self, part: int) -> Users:
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        return self.users.folder

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.users.parts

    @property
    def n_users(self) -> int:
        return self.users.n_users

    @property
    def groups_of(self) -> int:
        return self.users.groups_of

    @cached_property
    def _shape(self) -> tuple[int, bool]:
        example = next(pieces(self, 0))
        return example.n_features, example.has_targets

    @property
    def n_features(self) -> int:
        return self._shape[0]

    @property
    def has_targets(self) -> bool:
        return self._shape[1]


@dataclass(frozen=True)
class _Changed(_Derived):
    change: Change

    def read(self, part: int) -> Users:
        return _joined(list(pieces(self, part)))


@dataclass(frozen=True)
class _Capped(_Derived):
    max_items: int
    generators: tuple[np.random.Generator, ...]

    def read(self, part: int) -> Users:
        return self.users.read(part).capped(self.max_items, deepcopy(self.generators[part]))


@dataclass(frozen=True)
class _Taken(_Derived):
    """Some users of some parts: which part, and their places in it."""

    members: tuple[tuple[int, IntArray], ...]

    def read(self, part: int) -> Users:
        whole, places = self.members[part]
        return self.users.read(whole).take(places)

    @property
    def parts(self) -> tuple[Part, ...]:
        n_users = [len(places) for _, places in self.members]
        return tuple(map(Part, accumulate([0, *n_users]), n_users))

    @property
    def n_users(self) -> int:
        return sum(len(places) for _, places in self.members)


def _joined(some: list[Users]) -> Users:
    targets = [users.targets for users in some if users.targets is not None]
    items = np.concatenate([users.items_per_user for users in some])
    return Users(
        np.concatenate([users.rows for users in some]),
        np.concatenate([[0], np.cumsum(items)]),
        np.concatenate(targets) if targets else None,
    )
