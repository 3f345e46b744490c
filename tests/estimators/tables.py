"""Small tables of users for the estimators' tests; one shape for all fits, so that JAX compiles few loops."""

from dataclasses import dataclass

import numpy as np

from userdp.arrays import FloatArray, IntArray
from userdp.data.users import Users
from userdp.means.votes import NoisyCounts

N_USERS, ITEMS, FEATURES = 400, 3, 3


@dataclass(frozen=True)
class Table:
    X: FloatArray
    z: FloatArray  # 2 x_0 - x_1 + noise: a regression's target less 5, a class by its sign
    groups: IntArray

    @property
    def y(self) -> FloatArray:
        return self.z + 5

    @property
    def labels(self) -> IntArray:
        return (self.z > 0).astype(int)


def table(seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_USERS * ITEMS, FEATURES))
    return Table(
        X, 2 * X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=len(X)), np.repeat(np.arange(N_USERS), ITEMS)
    )


def ragged(*tables: list[list[float]] | FloatArray, targets: list[list[float]] | None = None) -> Users:
    """Build users from one table of rows each."""
    arrays = [np.asarray(rows, dtype=float) for rows in tables]
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in arrays])])
    return Users(np.vstack(arrays), offsets, None if targets is None else np.concatenate(targets))


def replaced(users: Users, rows: FloatArray, targets: FloatArray | None = None, place: int = 0) -> Users:
    """Return the neighbour in which one user's rows are others."""
    old = slice(users.offsets[place], users.offsets[place + 1])
    new = np.vstack([users.rows[: old.start], rows, users.rows[old.stop :]])
    items = users.items_per_user.copy()
    items[place] = len(rows)
    y = users.targets
    if y is not None:
        assert targets is not None
        y = np.concatenate([y[: old.start], targets, y[old.stop :]])
    return Users(new, np.concatenate([[0], np.cumsum(items)]), y)


def crowd(seed: int = 0, n: int = 12, d: int = 3) -> Users:
    """Users of one to five rows, over many powers of ten."""
    rng = np.random.default_rng(seed)
    return ragged(*(rng.lognormal(0, 3, size=(rng.integers(1, 6), d)) for _ in range(n)))


def moved(one: NoisyCounts, two: NoisyCounts) -> float:
    """How far two noiseless histograms are apart, as a share of the sensitivity that was paid for."""
    resolution = one.event.scale / one.noise_std
    return float(np.linalg.norm(one.counts - two.counts)) * resolution / one.event.sensitivity


# One user's rows that a careless stage would stumble over.
WILD = {
    "NaN": [[np.nan, 1.0, 2.0]],
    "infinite": [[np.inf, -np.inf, 1.0], [0.0, 1.0, 2.0]],
    "largest": [[1.7e308, -1.7e308, 1.7e308], [-1.7e308, 1.7e308, 1.0]],
    "smallest": [[5e-324, -5e-324, 5e-324], [0.0, 5e-324, 1e-310]],
    "zero": [[0.0, 0.0, 0.0]],
    "constant": [[7.0, 7.0, 7.0]] * 4,
    "far": [[1e12, -1e12, 1e-12]] * 2,
    "one row": [[0.3, 0.2, 0.1]],
}
