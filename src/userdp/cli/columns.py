"""Which columns a model reads, and the users they make: in memory, or sorted on disk."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from userdp.cli.display import Display
from userdp.cli.reading import reading
from userdp.data import StoredUsers, Table, UserTable, load_users, store_users
from userdp.errors import InvalidInputError

if TYPE_CHECKING:
    import polars as pl

_Loaded = TypeVar("_Loaded", UserTable, StoredUsers)


@dataclass(frozen=True)
class Columns:
    """Which columns a model reads and how; public knowledge, kept in the model file for predictions."""

    user: list[str]
    label: str
    features: list[str] | None
    categories: dict[str, list[str] | list[float]]
    other: list[str]
    classes: Sequence[Any] | None

    def load(self, table: Table) -> UserTable:
        """Read the table and group its rows by user."""
        return _several(load_users(table, **self._roles))

    def store(self, table: Table, folder: Path) -> StoredUsers:
        """Sort the table by user into a new folder."""
        return _several(store_users(table, folder, **self._roles))

    @property
    def _roles(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def encoding(self, table: Table) -> dict[str, Any]:
        """Return what a prediction needs to read other tables in the same way, as plain types."""
        roles = (*self.user, self.label)
        features = self.features or [name for name in table.schema if name not in roles]
        return {"features": features, "categories": self.categories, "other": self.other}


@contextmanager
def users_of(
    table: Table, columns: Columns, scratch: Path | None, display: Display
) -> Iterator[UserTable | StoredUsers]:
    """Read a table's users into memory, or sort them into a folder that is gone afterwards."""
    if scratch is None:
        with reading(table, display) as watched:
            loaded = columns.load(watched)
        yield loaded
        return
    scratch.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=scratch, prefix="userdp-") as folder:
        with reading(table, display, times=2) as watched:
            stored = columns.store(watched, Path(folder) / "users")
        yield stored


def fit_users(estimator: Any, users: UserTable | StoredUsers, classes: Sequence[Any] | None) -> None:
    """Fit an estimator to users in memory or on disk."""
    # Targets are the classes' places in the declared order.
    places = None if classes is None else tuple(range(len(classes)))
    if places is not None:
        estimator.set_params(classes=places)
    if isinstance(users, StoredUsers):
        estimator.fit(replace(users, classes=places))
        return
    groups = np.repeat(np.arange(users.n_users), users.users.items_per_user)
    estimator.fit(_typed(users), users.targets, groups=groups)


def _several(users: _Loaded) -> _Loaded:
    if users.n_users < 2:
        raise InvalidInputError("there is only one user; privacy among users needs at least 2")
    return users


def _typed(table: UserTable) -> "pl.DataFrame":
    """Return the features with their types, which tell an estimator what is 0 or 1."""
    import polars as pl

    columns = zip(table.feature_names, table.users.rows.T, table.booleans, strict=True)
    return pl.DataFrame(
        [
            pl.Series(name, values, nan_to_null=True).cast(pl.Boolean if boolean else pl.Float64)
            for name, values, boolean in columns
        ]
    )
