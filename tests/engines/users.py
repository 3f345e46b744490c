"""Users, losses and gradients for the tests of the compiled kernel."""

import numpy as np

from userdp.data import Users
from userdp.engines import local_oracle
from userdp.problems import Absolute, Hinge, Huber, Logistic, Pinball, Poisson, Squared, SquaredHinge

LOSSES = [
    Logistic(),
    Hinge(),
    SquaredHinge(),
    Squared(),
    Absolute(),
    Pinball(0.3),
    Huber(0.4),
    Poisson(2.0, 1.5),
]


def make_users(items, d, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    rows = scale * rng.normal(size=(sum(items), d)) / np.sqrt(d)
    groups = np.repeat(np.arange(len(items)), items)
    return Users.from_rows(rows, groups, 2.0 * rng.integers(0, 2, size=len(rows)))


def gradients(loss, users, theta, storage="float32"):
    """Rows in the order of the users."""
    oracle = local_oracle(loss, users, storage=storage)
    found = oracle.evaluate(theta).astype(np.float32)
    rows = np.empty_like(found)
    rows[np.concatenate([block.positions[: block.n_users] for block in oracle.data])] = found
    return rows
