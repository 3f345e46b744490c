"""Noise that is written down before it is used, so that an interrupted run can go on with the same draws.

A run that starts again must not draw a second noise for an answer that it may have given already: the difference of two
noises on one answer costs budget that nobody reserved. Here every draw is on disk before it is returned, and a run
that starts again gets the same draws in the same order.

**Guarantee**: the draws of a run and of all its restarts together have the law of one run's draws.
**Assumes**: restarts ask the same questions of the same data; the noise of one data set is never added to another.
What is written here takes the noise off the answers again: it is as sensitive as the data.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from userdp.arrays import IntArray
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource


class RecordedNoise:
    """A noise source whose draws are kept in a folder; an earlier run's draws come first."""

    def __init__(self, source: NoiseSource, folder: Path) -> None:
        self._source, self._folder, self._drawn = source, folder, 0

    @property
    def seeded(self) -> bool:
        """Whether the source was seeded."""
        return self._source.seeded

    def discrete_gaussian(self, scale: float, size: int) -> IntArray:
        """Draw, or repeat, integers with Pr[k] proportional to exp(-k^2 / (2 scale^2))."""
        return self._integers(["gaussian", scale, size], lambda: self._source.discrete_gaussian(scale, size))

    def discrete_laplace(self, scale: float, size: int) -> IntArray:
        """Draw, or repeat, integers with Pr[k] proportional to exp(-|k| / scale)."""
        return self._integers(["laplace", scale, size], lambda: self._source.discrete_laplace(scale, size))

    def geometric(self, scale: float, size: int) -> IntArray:
        """Draw, or repeat, non-negative integers with Pr[k] proportional to exp(-k / scale)."""
        return self._integers(["geometric", scale, size], lambda: self._source.geometric(scale, size))

    def permutation(self, n: int) -> IntArray:
        """Draw, or repeat, a uniform order of n things."""
        return self._integers(["permutation", n], lambda: self._source.permutation(n))

    def generator(self) -> np.random.Generator:
        """Return the source's generator, or the one an earlier run had."""

        def state() -> NDArray[Any]:
            return np.array(json.dumps(self._source.generator().bit_generator.state))

        recorded = json.loads(str(self._recorded(["generator"], state)))
        generator = np.random.Generator(getattr(np.random, recorded["bit_generator"])())
        generator.bit_generator.state = recorded
        return generator

    def _integers(self, asked: list[Any], draw: Callable[[], IntArray]) -> IntArray:
        return self._recorded(asked, draw).astype(np.int64)

    def _recorded(self, asked: list[Any], draw: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        file = self._folder / f"draw-{self._drawn:05d}.npz"
        self._drawn += 1
        question = json.dumps(asked)
        if file.exists():
            with np.load(file) as record:
                if str(record["asked"]) != question:
                    raise InvalidInputError(
                        f"{self._folder} belongs to another run; give a new folder, which is a new release"
                    )
                drawn: NDArray[Any] = record["drawn"]
            if self._source.seeded:
                draw()  # so that what comes after the earlier run's draws goes on in the seed's sequence
            return drawn
        drawn = draw()
        write_arrays(file, asked=np.array(question), drawn=drawn)
        return drawn


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays to a file that appears whole or not at all, and is on the disk when this returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
