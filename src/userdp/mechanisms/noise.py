"""Integer noise: exact samplers fed by the operating system, or a seed for experiments.

Every mechanism of the library adds integers to integers, so what is released lies on a public lattice and
no rounding error carries information (``docs/proofs/lattice.md``). Two sources of noise share an interface:

* :class:`SecureNoise` draws from OpenDP's exact discrete samplers, fresh entropy for every call, also after
  a fork.
* :class:`SeededNoise` draws quickly and repeatably from NumPy. Whoever knows the seed can remove the noise,
  so everything it touches says that it was seeded.
"""

import math
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from userdp.arrays import IntArray
from userdp.errors import InvalidInputError

_EXACT_TABLE_BELOW = 64.0


class NoiseSource(Protocol):
    """Where randomness comes from. ``scale`` is in lattice units and may be any positive float."""

    @property
    def seeded(self) -> bool:
        """Whether the draws can be repeated by whoever knows a seed."""

    def discrete_gaussian(self, scale: float, size: int) -> IntArray:
        """Draw integers with Pr[k] proportional to exp(-k^2 / (2 scale^2))."""

    def discrete_laplace(self, scale: float, size: int) -> IntArray:
        """Draw integers with Pr[k] proportional to exp(-|k| / scale)."""

    def geometric(self, scale: float, size: int) -> IntArray:
        """Draw non-negative integers with Pr[k] proportional to exp(-k / scale)."""

    def permutation(self, n: int) -> IntArray:
        """Draw a uniform order of n things."""

    def generator(self) -> np.random.Generator:
        """Return a generator for randomness that no guarantee rests on."""


class SecureNoise:
    """Exact discrete noise from OpenDP, fed by the operating system's entropy."""

    @property
    def seeded(self) -> bool:
        """Never: two runs share nothing."""
        return False

    def discrete_gaussian(self, scale: float, size: int) -> IntArray:
        """Draw integers with Pr[k] proportional to exp(-k^2 / (2 scale^2))."""
        return _draw(_opendp_sampler("gaussian", _positive(scale)), size)

    def discrete_laplace(self, scale: float, size: int) -> IntArray:
        """Draw integers with Pr[k] proportional to exp(-|k| / scale)."""
        return _draw(_opendp_sampler("laplace", _positive(scale)), size)

    def geometric(self, scale: float, size: int) -> IntArray:
        """Draw non-negative integers with Pr[k] proportional to exp(-k / scale).

        A discrete Laplace draw, given that it is not negative, has exactly this law.
        """
        kept = np.empty(0, np.int64)
        while kept.size < size:
            draws = self.discrete_laplace(scale, 2 * (size - kept.size) + 8)
            kept = np.concatenate([kept, draws[draws >= 0]])
        return kept[:size]

    def permutation(self, n: int) -> IntArray:
        """Draw a uniform order: 128 fresh bits a place, sorted."""
        keys = np.frombuffer(secrets.token_bytes(16 * n), dtype=np.uint64).reshape(2, n)
        return np.lexsort(keys)

    def generator(self) -> np.random.Generator:
        """Return a fresh generator, seeded with 256 bits of the operating system's entropy."""
        return np.random.default_rng(secrets.randbits(256))


class SeededNoise:
    """Fast, repeatable noise for experiments; never for a release.

    The discrete Gaussian is a rounded normal from a scale of 64 on (its variance is larger by 1/12), and an
    exact table below.
    """

    def __init__(self, seed: int | Sequence[int] | np.random.Generator) -> None:
        try:
            self._generator = np.random.default_rng(seed)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"a seed must be a whole number, at least 0, got {seed!r}; leave it out for a real release"
            ) from None

    @property
    def seeded(self) -> bool:
        """Always."""
        return True

    def discrete_gaussian(self, scale: float, size: int) -> IntArray:
        """Draw integers with Pr[k] proportional to exp(-k^2 / (2 scale^2))."""
        scale = _positive(scale)
        if scale >= _EXACT_TABLE_BELOW:
            return np.rint(self._generator.normal(0.0, scale, size)).astype(np.int64)
        reach = math.ceil(40 * scale)
        values = np.arange(-reach, reach + 1)
        weights = np.exp(-0.5 * (values / scale) ** 2)
        return self._generator.choice(values, size, p=weights / weights.sum())

    def discrete_laplace(self, scale: float, size: int) -> IntArray:
        """Draw integers with Pr[k] proportional to exp(-|k| / scale)."""
        return self.geometric(scale, size) - self.geometric(scale, size)

    def geometric(self, scale: float, size: int) -> IntArray:
        """Draw non-negative integers with Pr[k] proportional to exp(-k / scale)."""
        return self._generator.geometric(-math.expm1(-1 / _positive(scale)), size) - 1

    def permutation(self, n: int) -> IntArray:
        """Draw a uniform order of n things."""
        return self._generator.permutation(n)

    def generator(self) -> np.random.Generator:
        """Return a generator that continues this source's stream."""
        return self._generator.spawn(1)[0]


def noise_source(random_state: int | np.random.Generator | NoiseSource | None) -> NoiseSource:
    """Turn a ``random_state`` argument into a source: None is secure, a seed is for experiments.

    Examples
    --------
    >>> noise_source(None).seeded, noise_source(0).seeded
    (False, True)
    """
    if random_state is None:
        return SecureNoise()
    if isinstance(random_state, int | np.integer | np.random.Generator):
        return SeededNoise(
            random_state if isinstance(random_state, np.random.Generator) else int(random_state)
        )
    if isinstance(random_state, SecureNoise | SeededNoise):
        return random_state
    raise InvalidInputError(
        "random_state must be None (secure noise), an integer seed or a numpy Generator, "
        f"got {type(random_state).__name__}"
    )


def laplace_scale(sensitivity: int, epsilon: float) -> float:
    """Scale sensitivity/epsilon of Laplace or geometric noise, rounded up."""
    return math.nextafter(sensitivity / epsilon, math.inf)


def _positive(scale: float) -> float:
    if not (math.isfinite(scale) and scale > 0):
        raise InvalidInputError(f"a noise scale must be positive and finite, got {scale!r}")
    return float(scale)


@lru_cache(maxsize=64)
def _opendp_sampler(law: str, scale: float) -> Any:
    """Build an OpenDP measurement on integer vectors; imported here so that the core runs without OpenDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == "gaussian":
        return dp.m.make_gaussian(integers, dp.l2_distance(T=float), scale=scale)
    return dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale=scale)


def _draw(sampler: Any, size: int) -> IntArray:
    return np.array(sampler([0] * size), dtype=np.int64) if size else np.empty(0, np.int64)
