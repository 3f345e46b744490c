"""What several test modules share."""

import numpy as np
import pytest
from hypothesis import settings

from userdp.arrays import IntArray

# A slow machine is no failure.
settings.register_profile("userdp", deadline=None)
settings.load_profile("userdp")


class ScriptedNoise:
    """A noise source that plays back given draws and records the scales it was asked for."""

    seeded = True

    def __init__(self, *draws: int) -> None:
        self.draws = list(draws)
        self.asked: list[tuple[str, float]] = []

    def _play(self, law: str, scale: float, size: int) -> IntArray:
        self.asked.append((law, scale))
        return np.array([self.draws.pop(0) for _ in range(size)], dtype=np.int64)

    def discrete_gaussian(self, scale: float, size: int) -> IntArray:
        return self._play("gaussian", scale, size)

    def discrete_laplace(self, scale: float, size: int) -> IntArray:
        return self._play("laplace", scale, size)

    def geometric(self, scale: float, size: int) -> IntArray:
        return self._play("geometric", scale, size)

    def permutation(self, n: int) -> IntArray:
        return np.arange(n)

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(0)


@pytest.fixture
def scripted_noise() -> type[ScriptedNoise]:
    return ScriptedNoise


class SilentNoise(ScriptedNoise):
    """A noise source whose every draw is zero: shows the exact answers inside a mechanism."""

    def _play(self, law: str, scale: float, size: int) -> IntArray:
        self.asked.append((law, scale))
        return np.zeros(size, dtype=np.int64)


@pytest.fixture
def silent_noise() -> SilentNoise:
    return SilentNoise()
