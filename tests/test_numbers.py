"""Floating-point attacks: what low bits, special values, order or a copied random state could tell."""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from tests.conftest import ScriptedNoise
from userdp.means import (
    AdaptiveClippedMean,
    ClippedMean,
    ConcentratedMean,
    DeletionPTR,
    FriendlyCoreMean,
    LevyMean,
)
from userdp.means.clipped import clip_to_lattice_ball
from userdp.mechanisms.noise import SeededNoise, noise_source
from userdp.privacy import Budget

# Not a power of two: products with the step are rounded, so a sum made in floats would show.
RADIUS = 0.7
BUDGET = Budget(4.0, 1e-4)
CONCENTRATED = {
    "Gaussian gate": (ConcentratedMean(RADIUS), 200),
    "deferred gate": (ConcentratedMean(RADIUS, gate="deferred"), 200),
    "one-sided gate": (ConcentratedMean(RADIUS, gate="one-sided"), 200),
    "friendly core": (FriendlyCoreMean(RADIUS), 200),
    "deletions": (DeletionPTR(RADIUS), 16),
}


class OneDraw(ScriptedNoise):
    """Zero noise but for the draw that goes onto the mean: the largest scale asked for."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def _play(self, law, scale, size):
        return np.full(size, self.value if law == "gaussian" and scale > 2.0**14 else 0, dtype=np.int64)


def answer(calibrated, n, at, draw):
    session = calibrated.start(OneDraw(draw))
    found = session.answer(np.full((n, 1), at))
    session.finish()
    return float(found[0])


@pytest.mark.parametrize("name", CONCENTRATED)
def test_an_answer_is_a_function_of_one_noisy_integer_wherever_the_users_are(name):
    """All users at lattice point a, or all at b: noise that makes up for the difference gives the same float."""
    mean, n = CONCENTRATED[name]
    calibrated = mean.calibrate(n, 1, BUDGET)
    lattice = calibrated.lattice
    rng = np.random.default_rng(0)
    for a, b in [(3, 1_000), (2**30 + 1, 2**30 + 77), (-(2**40), -(2**40) + 13), (2**45 + 5, 2**45 - 8)]:
        for k in rng.integers(-(2**36), 2**36, 1 if name == "deletions" else 50):
            shifted = k + ((a - b) << lattice.answer_bits)
            one = answer(calibrated, n, a * lattice.step, k)
            other = answer(calibrated, n, b * lattice.step, shifted)
            assert math.copysign(1, one) == math.copysign(1, other)
            assert one == other


@pytest.mark.parametrize("mean", [ClippedMean(RADIUS, [5.0]), AdaptiveClippedMean(RADIUS, centre=[5.0])])
def test_a_clipped_answer_is_a_function_of_one_noisy_integer(mean):
    n, rng = 300, np.random.default_rng(1)
    calibrated = mean.calibrate(n, 1, BUDGET)
    lattice = calibrated.lattice(RADIUS) if callable(calibrated.lattice) else calibrated.lattice
    one, other = rng.normal(5.0, 1.0, (n, 1)), rng.normal(4.0, 3.0, (n, 1))
    gap = int(
        (clip_to_lattice_ball(one, calibrated.centre, lattice).sum())
        - (clip_to_lattice_ball(other, calibrated.centre, lattice).sum())
    )
    scripts = rng.integers(-(2**24), 2**24, 200)
    for k in scripts.tolist():
        found = [
            float(calibrated.start(ScriptedNoise(draw)).answer(x)[0])
            for x, draw in ((one, k), (other, k + gap))
        ]
        assert found[0] == found[1]


EVERY_MEAN = {
    **{name: mean for name, (mean, _) in CONCENTRATED.items() if name != "deletions"},
    "clipped": ClippedMean(RADIUS),
    "adaptive": AdaptiveClippedMean(RADIUS, warmup=2),
    "Levy": LevyMean(RADIUS, bound=8.0),
}


def released(mean, x):
    """Answer with every floating-point warning an error: none may tell of a user's value."""
    calibrated = mean.calibrate(*x.shape, Budget(2.0, 1e-4))
    with np.errstate(all="raise"):
        session = calibrated.start(SeededNoise(0))
        value = session.answer(x)
        session.finish()
        return value.tobytes()


@pytest.mark.parametrize("name", EVERY_MEAN)
@pytest.mark.parametrize("tiny", [-0.0, 5e-324, -5e-324, 2.2e-308, -1e-310])
def test_signed_zeros_and_subnormals_are_zeros(name, tiny):
    zeros, tinies = np.zeros((400, 2)), np.zeros((400, 2))
    tinies[::3, 0] = tiny
    tinies[::5] = tiny
    assert released(EVERY_MEAN[name], zeros) == released(EVERY_MEAN[name], tinies)


@pytest.mark.parametrize("name", EVERY_MEAN)
def test_one_value_that_cannot_be_used_is_like_any_other(name):
    """NaN, infinities and numbers beyond the lattice, in either coordinate, give one and the same release."""
    x = np.random.default_rng(0).normal(0.0, 0.05, (400, 2))
    found = set()
    for bad in (math.nan, -math.nan, math.inf, -math.inf):
        for row in ([bad, 0.01], [0.01, bad], [bad, bad]):
            x[7] = row
            found.add(released(EVERY_MEAN[name], x))
    assert len(found) == 1


@pytest.mark.parametrize("name", EVERY_MEAN)
def test_huge_values_raise_nothing(name):
    x = np.random.default_rng(0).normal(0.0, 0.05, (400, 2))
    for huge in (1e154, -1e200, 1.7e308, 2.0**53, -(2.0**63), 2.0**64):
        x[7, 0] = huge
        released(EVERY_MEAN[name], x)


@pytest.mark.parametrize("name", ["Gaussian gate", "clipped", "friendly core", "Levy"])
def test_the_order_of_the_users_is_not_in_the_bits(name):
    x = np.random.default_rng(0).normal(0.0, 0.05, (400, 2))
    assert released(EVERY_MEAN[name], x) == released(EVERY_MEAN[name], x[::-1].copy())


@pytest.mark.parametrize("mean", [ClippedMean(RADIUS), ConcentratedMean(RADIUS)])
def test_a_million_users_lose_no_bit(mean):
    """Any order, and any one user moved by one lattice step, shows in the exact sum, and as that integer alone."""
    n = 1_000_000
    x = np.random.default_rng(2).uniform(-0.3, 0.3, (n, 1))
    calibrated = mean.calibrate(n, 1, Budget(1.0, 1e-9))
    silent = [float(calibrated.start(OneDraw(0)).answer(rows)[0]) for rows in (x, x[::-1].copy())]
    units = (
        np.trunc(x / calibrated.lattice.step)
        if isinstance(mean, ClippedMean)
        else np.rint(x / calibrated.lattice.step)
    )
    exact = sum(map(int, units[:, 0].tolist())) / n * calibrated.lattice.step
    assert silent[0] == silent[1]
    assert silent[0] == pytest.approx(exact, abs=2 * calibrated.lattice.step / 2**14 / 1000)


def _values(_):
    x = np.zeros((300, 1))
    found = [ClippedMean(1.0).release(x, epsilon=1.0, delta=1e-6).value[0] for _ in range(3)]
    noise = noise_source(None)
    return [*found, noise.generator().random()]


@pytest.mark.filterwarnings("ignore:os.fork", "ignore:This process")
@pytest.mark.parametrize("start", ["fork", "spawn", "threads"])
def test_releases_of_worker_processes_share_no_noise(start):
    _values(0)  # whatever state there is exists before the fork
    pool = (
        ThreadPoolExecutor(2)
        if start == "threads"
        else ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(start))
    )
    with pool:
        found = [value for values in pool.map(_values, range(4)) for value in values]
    assert len(set(found)) == len(found) == 16
