"""Beside the release nothing depends on one user's values: no draw, no message, no log line, no early exit.

Each mechanism runs on a table and on neighbours of it whose replaced user is as wild as can be. What noise is asked
for, in which order, and all that is printed, warned or logged must be the same. Time and memory are not covered
(``docs/threat-model.md``).
"""

import logging
import math
import warnings

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
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import SquaredDistance

N_USERS = 400
WILD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e-300, 1e30, -1e155, 1.7e308)


class Watched(SeededNoise):
    """Notes what it is asked for; scales where they may not follow a released number."""

    def __init__(self, *, with_scales):
        super().__init__(0)
        self.asked, self.with_scales = [], with_scales

    def _note(self, law, scale, size):
        self.asked.append((law, scale if self.with_scales else None, size))

    def discrete_gaussian(self, scale, size):
        self._note("gaussian", scale, size)
        return super().discrete_gaussian(scale, size)

    def geometric(self, scale, size):
        self._note("geometric", scale, size)
        return super().geometric(scale, size)

    def permutation(self, n):
        self._note("permutation", None, n)
        return super().permutation(n)


def table():
    return np.random.default_rng(0).normal(0.0, 0.1, size=(N_USERS, 2))


def neighbours():
    for wild in WILD:
        x = table()
        x[7, 1] = wild
        yield x
        x = table()
        x[7] = wild
        yield x


def mean_of(estimator):
    calibrated = estimator.calibrate(N_USERS, 2, Budget(4.0, 1e-4), rounds=2)

    def run(x, noise):
        session = calibrated.start(noise)
        session.answer(x)
        session.answer(x)
        session.finish()

    return run


def located(x, noise):
    userdp.mean(x, groups=np.arange(N_USERS), epsilon=4.0, delta=1e-4, random_state=noise)


def trained(x, noise):
    userdp.minimize(
        SquaredDistance(),
        Users.from_rows(x, np.arange(N_USERS)),
        optimizer=OPTIMIZER,
        mean=ConcentratedMean(1.0, gate="deferred"),
        epsilon=4.0,
        delta=1e-4,
        random_state=noise,
    )


def fitted(x, noise):
    model = userdp.LinearRegression(4.0, 1e-4, rounds=2, random_state=noise)
    model.fit(x[:, :1], x[:, 1], groups=np.arange(N_USERS))


OPTIMIZER = DPSGD(rounds=2, step_size=0.5)
# Whether the scales are public beforehand, or follow what was released.
MECHANISMS = {
    "clipped": (mean_of(ClippedMean(1.0)), True),
    "adaptive": (mean_of(AdaptiveClippedMean(1.0)), True),
    "deferred gate": (mean_of(ConcentratedMean(1.0, gate="deferred")), True),
    "one-sided gate": (mean_of(ConcentratedMean(1.0, gate="one-sided")), True),
    "Gaussian gate": (mean_of(ConcentratedMean(1.0)), False),
    "Bassily and Sun": (mean_of(BassilySunMean(1.0)), False),
    "friendly core": (mean_of(FriendlyCoreMean(1.0)), False),
    "Levy": (mean_of(LevyMean(1.0, bound=8.0)), True),
    "userdp.mean": (located, False),
    "minimize": (trained, True),
    "LinearRegression": (fitted, False),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_run_looks_the_same_whatever_one_user_holds(name, capfd, caplog):
    run, with_scales = MECHANISMS[name]
    caplog.set_level(logging.DEBUG, logger="userdp")

    def seen(x):
        noise = Watched(with_scales=with_scales)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(x, noise)
        printed = capfd.readouterr()
        logged = [record.getMessage() for record in caplog.records if record.name.startswith("userdp")]
        caplog.clear()
        return noise.asked, [str(one.message) for one in caught], printed.out, printed.err, logged

    usual = seen(table())
    assert usual[1:] == ([], "", "", [])
    for x in neighbours():
        assert seen(x) == usual
