"""What leaves is small: no release holds anything that grows with the users, or a way back to them."""

import gc
import types
from dataclasses import fields

import numpy as np
import pytest

import userdp
from userdp.data import Users
from userdp.means import (
    AdaptiveClippedMean,
    BassilySunMean,
    ClippedMean,
    ConcentratedMean,
    FriendlyCoreMean,
    LevyMean,
)
from userdp.optimizers import DPSGD
from userdp.problems import SquaredDistance

N_USERS = 1_500
MEANS = {
    "clipped": ClippedMean(1.0),
    "adaptive": AdaptiveClippedMean(1.0, warmup=2),
    "certified, Gaussian gate": ConcentratedMean(1.0),
    "certified, deferred gate": ConcentratedMean(1.0, gate="deferred"),
    "certified, one-sided gate": ConcentratedMean(1.0, gate="one-sided"),
    "paper": ConcentratedMean(1.0, calibration="paper"),
    "Levy": LevyMean(1.0, bound=8.0),
    "Bassily and Sun": BassilySunMean(1.0),
    "friendly core": FriendlyCoreMean(1.0),
}


def vectors():
    return np.random.default_rng(0).normal(0.0, 0.05, size=(N_USERS, 2))


def release_of(name):
    return MEANS[name].release(vectors(), epsilon=1.0, delta=1e-6, random_state=0)


def located():
    x = np.repeat(vectors(), 2, axis=0)
    return userdp.mean(x, groups=np.repeat(np.arange(N_USERS), 2), epsilon=1.0, delta=1e-6, random_state=0)


def solution():
    users = Users.from_rows(vectors(), groups=np.arange(N_USERS))
    return userdp.minimize(
        SquaredDistance(),
        users,
        optimizer=DPSGD(rounds=3, step_size=0.3),
        mean=ClippedMean(1.0),
        epsilon=1.0,
        delta=1e-6,
        random_state=0,
    )


RELEASES = {
    **{name: (lambda name=name: release_of(name)) for name in MEANS},
    "mean": located,
    "minimize": solution,
}


def reachable(root):
    """Everything that an object refers to, but for classes, modules and functions, which hold no data."""
    skipped = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
    seen, waiting = {}, [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, skipped):
            continue
        seen[id(item)] = item
        waiting += [item.base] if isinstance(item, np.ndarray) and item.base is not None else []
        waiting += gc.get_referents(item)
    return seen.values()


def size(item):
    if isinstance(item, np.ndarray):
        return item.size
    return len(item) if isinstance(item, list | tuple | dict | set | frozenset) else 0


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_holds_its_fields_and_nothing_that_grows_with_the_users(name):
    release = RELEASES[name]()
    assert set(vars(release)) == {field.name for field in fields(release)}
    assert max(size(item) for item in reachable(release)) < 100 < N_USERS


def test_the_walk_would_find_what_is_hidden():
    hidden = types.SimpleNamespace(small=np.arange(4)[:2], deep=[{"x": (vectors()[:1],)}])
    assert max(size(item) for item in reachable(hidden)) >= N_USERS
