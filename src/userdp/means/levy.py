r"""Levy et al. (2021): find the range of each rotated coordinate, clip to it, average, add Laplace noise.

Users' vectors lie within ``bound`` of the origin and, but for luck, within ``radius`` = tau of some unknown
point. A random signed Hadamard rotation spreads every vector over the D = 2^k coordinates, so that each lies
within tau' of its own unknown centre. Per coordinate, on two pure parts of epsilon_i each:

1. a private median over bins of width 2 tau' that cover [-bound, bound] picks a bin with middle s;
2. answer s + (1/n) (sum_j clip(y_j - s, -2 tau', 2 tau') + Lap(4 tau'/epsilon_i)); rotate back.

**Guarantee**: (epsilon, delta)-DP for replacing one user, whatever the data: ``docs/proofs/levy_mean.md``,
which also compares the constants with the paper's.
"""

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from userdp.arrays import FloatArray, IntArray, is_finite
from userdp.errors import InvalidInputError
from userdp.means.interface import ReleasesOnce, check_positive_rounds, check_query, check_rounds
from userdp.means.lattice import COORDINATE_LIMIT, Lattice
from userdp.means.pure_parts import PureParts, split_evenly
from userdp.mechanisms.noise import NoiseSource, laplace_scale
from userdp.mechanisms.quantile import private_quantile
from userdp.privacy.accounting import Event
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement

# One noise draw per bin and coordinate: beyond this a round takes minutes.
MAX_BINS = 2**22

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True)
class LevyMean(ReleasesOnce):
    """Mean by private range finding in a random rotation; its split over D coordinates costs sqrt(D).

    Parameters
    ----------
    radius : float
        Distance tau from some unknown point within which all users are expected; public.
    bound : float
        Distance from the origin within which all users are expected; public. Costs log(bound/radius) users.
    failure : float
        Probability gamma with which the rotation may leave some coordinate of a user beyond tau'.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(3.0, 0.1, size=(5000, 2))
    >>> release = LevyMean(radius=0.5, bound=100.0).release(x, epsilon=1, delta=1e-6, random_state=0)
    >>> bool(abs(release.value - 3).max() < 0.05), release.privacy.certified
    (True, True)
    """

    radius: float
    bound: float
    failure: float = 0.01

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> "CalibratedLevyMean":
        """Split the budget over coordinates and rounds; reads no data."""
        check_positive_rounds(rounds)
        if not 0 < self.failure < 1:
            raise InvalidInputError(f"failure must lie strictly between 0 and 1, got {self.failure!r}")
        padded = 1 << (dimension - 1).bit_length() if dimension > 1 else 1
        lattice = Lattice.fine_enough(self.radius, n_users, padded)
        if not (is_finite(self.bound) and self.bound >= self.radius):
            raise InvalidInputError(f"bound must be a number and at least the radius, got {self.bound!r}")
        # Rotated coordinates are kept sqrt(D) too large, so that they stay integers.
        stretch = math.sqrt(padded)
        half_bin = math.ceil(
            coordinate_radius(1.0, n_users, padded, self.failure) * stretch * lattice.radius_units
        )
        bins = math.ceil(self.bound / lattice.step * stretch / half_bin)
        if bins * padded > MAX_BINS:
            raise InvalidInputError(
                f"a range of {self.bound:g} at radius {self.radius:g} takes {bins:,} bins in each of "
                f"{padded:,} coordinates, more than {MAX_BINS:,} in all; use a smaller bound or larger radius"
            )
        parts = split_evenly("range and mean of coordinates", 2 * padded * rounds, budget, beside)
        return CalibratedLevyMean(budget, n_users, dimension, rounds, lattice, half_bin, bins, parts, beside)


def coordinate_radius(radius: float, n_users: int, dimension: int, failure: float) -> float:
    """Return tau': with probability 1 - failure no rotated coordinate of n vectors of norm tau is larger.

    tau min(1, sqrt(2 log(2 D n/gamma)/D)), by Hoeffding; the paper has 10 tau sqrt(log(D n/gamma)/D).
    """
    hoeffding = math.sqrt(2 * math.log(2 * dimension * n_users / failure) / dimension)
    return radius * min(1.0, hoeffding)


def hadamard(vectors: NDArray[Number]) -> NDArray[Number]:
    """Multiply rows by the Hadamard matrix of +-1 of their length, a power of two; exact on integers."""
    x = vectors.copy()
    rows, D = x.shape
    half = 1
    while half < D:
        blocks = x.reshape(rows, D // (2 * half), 2, half)
        x = np.stack([blocks[:, :, 0] + blocks[:, :, 1], blocks[:, :, 0] - blocks[:, :, 1]], axis=2)
        x = x.reshape(rows, D)
        half *= 2
    return x


@dataclass(frozen=True)
class CalibratedLevyMean:
    """The estimator with its bins and the epsilon of its parts set; lengths in stretched lattice units."""

    budget: Budget
    n_users: int
    dimension: int
    rounds: int
    lattice: Lattice
    half_bin: int
    bins: int
    parts: PureParts
    beside: tuple[Event, ...]

    def start(self, noise: NoiseSource) -> "LevySession":
        """Open a session of the calibrated rounds."""
        return LevySession(self, noise)

    @property
    def laplace_scale(self) -> float:
        """Scale of the noise on a coordinate's sum: clipped offsets differ by at most four half bins."""
        return laplace_scale(4 * self.half_bin, self.parts.epsilon)

    @property
    def upper_edges(self) -> FloatArray:
        """Upper ends of the bins, which cover the bound on both sides of 0."""
        return np.arange(2 - self.bins, self.bins + 1, 2, dtype=np.float64) * self.half_bin


@dataclass
class LevySession:
    """One run over adaptive queries, each in a fresh rotation."""

    mean: CalibratedLevyMean
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    _answered: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._rotations = self.noise.generator()

    @property
    def noise_std(self) -> float:
        """Standard deviation of each answer's noise, per coordinate."""
        mean = self.mean
        stretch = math.sqrt(mean.lattice.dimension)
        return math.sqrt(2) * mean.laplace_scale * mean.lattice.step / (mean.n_users * stretch)

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query."""
        mean, D = self.mean, self.mean.lattice.dimension
        if self._closed:
            raise InvalidInputError("this session is over; a new one costs its budget again")
        check_rounds(self._answered, mean.rounds)
        x = check_query(vectors, mean.n_users, mean.dimension)
        self._answered += 1
        signs = 2 * self._rotations.integers(0, 2, D) - 1
        present, rotated = self._rotate(x, signs)
        middle, offset = np.empty(D), np.empty(D)
        for k in range(D):
            middle[k], offset[k] = self._coordinate(present, rotated[:, k])
        noisy = hadamard((middle + offset / mean.n_users)[None])[0] * (signs / D)
        answer: FloatArray = noisy[: mean.dimension] * mean.lattice.step
        return answer

    def _rotate(self, x: FloatArray, signs: IntArray) -> tuple[FloatArray, IntArray]:
        """Return NaN for null users and 0 for others, and exact stretched coordinates (0 where null)."""
        lattice, D = self.mean.lattice, self.mean.lattice.dimension
        units = lattice.round(x)
        with np.errstate(invalid="ignore"):
            usable = (np.abs(units) <= COORDINATE_LIMIT / D).all(axis=1)
        padded = np.zeros((len(x), D), np.int64)
        padded[usable, : self.mean.dimension] = units[usable].astype(np.int64)
        return np.where(usable, 0.0, np.nan), hadamard(padded * signs)

    def _coordinate(self, null: FloatArray, y: IntArray) -> tuple[float, float]:
        """Find the middle of the median's bin and the noisy sum of clipped offsets from it."""
        mean, t = self.mean, self.mean.half_bin
        edge = private_quantile(y + null, 0.5, mean.parts.epsilon, self.noise, mean.upper_edges)
        middle = int(edge) - t
        offsets = np.clip(y - middle, -2 * t, 2 * t)
        total = int(offsets[~np.isnan(null)].sum())
        return middle, total + int(self.noise.discrete_laplace(mean.laplace_scale, 1)[0])

    def finish(self) -> PrivacyStatement:
        """Close the session and state the guarantee."""
        mean = self.mean
        self._closed = True
        return PrivacyStatement.certify(
            mean.budget, (*mean.beside, *mean.parts.events), n_users=mean.n_users, seeded=self.noise.seeded
        )
