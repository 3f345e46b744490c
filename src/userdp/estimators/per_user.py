"""One vector of each user: an array where users are in memory, else computed part by part whenever it is needed.

Stages see users through this only. They add integers up over the parts, so that what they add does not depend on how
users were cut into parts, and memory holds a few users' vectors at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np

from userdp.arrays import FloatArray, IntArray
from userdp.data.parts import AnyUsers, pieces
from userdp.data.users import Users


@dataclass(frozen=True)
class StreamedVectors:
    """One vector of each user, part by part.

    Attributes
    ----------
    n_users : int
        All parts' users.
    parts : callable
        Begin again: yields each part's vectors, an array of shape (n_users of the part, columns).
    """

    n_users: int
    parts: Callable[[], Iterator[FloatArray]]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Number of users and columns."""
        return self.n_users, next(self.parts()).shape[1]


Vectors: TypeAlias = FloatArray | StreamedVectors


def per_user(function: Callable[..., FloatArray], users: AnyUsers, *arguments: Any) -> Vectors:
    """Return ``function(users, *arguments)``, one row for each user and a function of that user alone."""
    if isinstance(users, Users):
        return function(users, *arguments)
    return StreamedVectors(
        users.n_users, lambda: (function(some, *arguments) for some in users_in_parts(users))
    )


def users_in_parts(users: AnyUsers) -> Iterator[Users]:
    """Return the users part by part; those in memory are one part."""
    if isinstance(users, Users):
        return iter((users,))
    return (some for part in range(len(users.parts)) for some in pieces(users, part))


def mapped(function: Callable[..., Any], *vectors: Vectors) -> Vectors:
    """Return ``function`` of the users' vectors, which it treats row by row."""
    if not any(isinstance(some, StreamedVectors) for some in vectors):
        found: FloatArray = function(*vectors)
        return found
    return StreamedVectors(
        vectors[0].shape[0],
        lambda: (function(*parts) for parts in zip(*map(in_parts, vectors), strict=True)),
    )


def in_parts(vectors: Vectors) -> Iterator[FloatArray]:
    """Return the users' vectors part by part; an array is one part."""
    return vectors.parts() if isinstance(vectors, StreamedVectors) else iter((vectors,))


def sum_over_parts(function: Callable[[Users], IntArray], users: AnyUsers) -> IntArray:
    """Add up ``function`` of users, part by part."""
    return reduce(np.add, map(function, users_in_parts(users)))


def total(function: Callable[[FloatArray], IntArray], vectors: Vectors) -> IntArray:
    """Add up ``function`` of the parts: integers, whose sum is the same however users were cut into parts."""
    return reduce(np.add, map(function, in_parts(vectors)))


def chosen_users(vectors: Vectors, places: IntArray) -> FloatArray:
    """Return the vectors of the users at some places, in that order and in memory."""
    found, first = np.empty((len(places), vectors.shape[1])), 0
    for part in in_parts(vectors):
        inside = (places >= first) & (places < first + len(part))
        found[inside] = part[places[inside] - first]
        first += len(part)
    return found
