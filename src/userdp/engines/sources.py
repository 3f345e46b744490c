"""Where shards find their users: in memory, or in the parts of stored users."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from userdp.data.parts import AnyUsers, UsersInParts
from userdp.data.users import Users
from userdp.engines.groups import n_groups
from userdp.engines.layout import LaidOut, Layout
from userdp.errors import InvalidInputError


class Source(Protocol):
    """Where a shard finds its users."""

    def load(self, lay_out: Layout) -> LaidOut:
        """Lay the users out; the same at every call."""

    @property
    def n_users(self) -> int:
        """How many users the shard has."""

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""


@dataclass(frozen=True)
class InMemory:
    """Users that are at hand; ``first`` is the place of the first of them in the whole data."""

    users: Users
    first: int
    min_items: int

    @property
    def n_users(self) -> int:
        """How many users the shard has."""
        return self.users.n_users

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return self.users.n_features

    def load(self, lay_out: Layout) -> LaidOut:
        """Lay the users out in memory."""
        return lay_out(self.users, self.min_items, first=self.first, few_shapes=True)


@dataclass(frozen=True)
class OnDisk:
    """One part of users on disk, read when it is needed."""

    stored: UsersInParts
    part: int
    min_items: int

    @property
    def n_users(self) -> int:
        """How many users the shard has."""
        return self.stored.parts[self.part].n_users

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return self.stored.n_features

    def load(self, lay_out: Layout) -> LaidOut:
        """Read the part and lay its users out."""
        first = self.stored.parts[self.part].first_user
        return lay_out(self.stored.read(self.part), self.min_items, first=first, few_shapes=True)


def sources_of(users: AnyUsers, min_items: int, n_shards: int, group_size: int = 1) -> list[Source]:
    """Cut users into shards of about equally many users; stored users are cut as they are stored.

    No shard's border cuts a group.
    """
    if not isinstance(users, Users):
        # In the order of their ids, a user under another id would move everybody to another group.
        if group_size not in (1, users.groups_of):
            raise InvalidInputError(
                f"users stored for groups of {users.groups_of} cannot be trained in groups of {group_size}; "
                f"store the users with groups_of={group_size}"
            )
        return [OnDisk(users, part, min_items) for part in range(len(users.parts))]
    whole = n_groups(users.n_users, group_size)
    borders = np.linspace(0, whole, min(n_shards, whole) + 1).astype(np.int64) * group_size
    borders[-1] = users.n_users
    return [
        InMemory(users.between(int(first), int(last)), int(first), min_items)
        for first, last in pairwise(borders)
    ]
