"""The yardstick: clip every user into a known ball, average, add Gaussian noise."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray, IntArray
from userdp.errors import InvalidInputError
from userdp.means.interface import ReleasesOnce, as_centre, check_positive_rounds, check_query, check_rounds
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import Event, GaussianEvent, gaussian_scale, mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement

# More than the relative rounding error of a square root, a quotient and a product.
_NORM_ERROR = 2.0**-24


@dataclass(frozen=True)
class ClippedMean(ReleasesOnce):
    """Mean of the users' vectors clipped into the ball of a public ``centre`` and ``radius``.

    Each user contributes centre + clip(x_j - centre), a null user the centre; the sum of the integers has
    sensitivity 2 radius, so the noise on the mean is that of sensitivity 2 radius / n.

    **Guarantee**: (epsilon, delta)-DP for replacing one user, whatever the data
    (``docs/proofs/clipped_mean.md``).

    Parameters
    ----------
    radius : float
        Radius of the ball; public.
    centre : array of shape (dimension,), optional
        Centre of the ball; public. The origin by default.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(5.0, 1.0, size=(2000, 3))
    >>> release = ClippedMean(radius=4.0, centre=[5, 5, 5]).release(x, epsilon=1, delta=1e-6, random_state=0)
    >>> bool(abs(release.value - 5).max() < 0.2)
    True
    """

    radius: float
    centre: ArrayLike | None = None

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> "CalibratedClippedMean":
        """Set the noise for ``rounds`` adaptive queries."""
        check_positive_rounds(rounds)
        centre = as_centre(self.centre, dimension)
        lattice = Lattice.fine_enough(self.radius, n_users, dimension)
        mu = mu_beside(beside, budget.epsilon, budget.delta)
        if mu == 0:
            raise InvalidInputError("the other parts of the release leave no budget for the clipped mean")
        sensitivity = 2.0 * lattice.radius_units
        scale = gaussian_scale(sensitivity, mu, rounds)
        event = GaussianEvent("clipped mean", sensitivity, scale, dimension, rounds)
        return CalibratedClippedMean(centre, budget, n_users, lattice, event, beside)


@dataclass(frozen=True)
class CalibratedClippedMean:
    """A clipped mean with its noise set."""

    centre: FloatArray
    budget: Budget
    n_users: int
    lattice: Lattice
    event: GaussianEvent
    beside: tuple[Event, ...]

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.event.rounds

    def statement(self, *, seeded: bool) -> PrivacyStatement:
        """State the guarantee of a whole session."""
        events = (*self.beside, self.event)
        return PrivacyStatement.certify(self.budget, events, n_users=self.n_users, seeded=seeded)

    def start(self, noise: NoiseSource) -> "ClippedSession":
        """Open a session of the calibrated rounds."""
        return ClippedSession(self, noise)


@dataclass
class ClippedSession:
    """One run of a clipped mean over its adaptive queries."""

    mean: CalibratedClippedMean
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    _answered: int = field(default=0, init=False)

    @property
    def noise_std(self) -> float:
        """Standard deviation of each answer's noise, per coordinate."""
        return self.mean.event.scale * self.mean.lattice.step / self.mean.n_users

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query."""
        mean, lattice = self.mean, self.mean.lattice
        check_rounds(self._answered, mean.event.rounds)
        x = check_query(vectors, mean.n_users, lattice.dimension)
        self._answered += 1
        total = clip_to_lattice_ball(x, mean.centre, lattice).sum(axis=0)
        noisy = total + self.noise.discrete_gaussian(mean.event.scale, lattice.dimension)
        offset: FloatArray = noisy * (lattice.step / mean.n_users)
        return mean.centre + offset

    def finish(self) -> PrivacyStatement:
        """State the guarantee."""
        return self.mean.statement(seeded=self.noise.seeded)


def norm_limit(lattice: Lattice) -> float:
    """Return the norm to clip to, in lattice units: its rounding error cannot lead out of the ball."""
    return lattice.radius_units * (1 - _NORM_ERROR)


def norm_bits(dimension: int) -> int:
    """Bits per coordinate with which a sum of ``dimension`` squares stays at most 2^53."""
    return (53 - (dimension - 1).bit_length()) // 2


def clip_to_lattice_ball(vectors: FloatArray, centre: FloatArray, lattice: Lattice) -> IntArray:
    """Clip rows into the ball and round towards its centre: integer offsets of norm at most radius_units.

    A row that is not finite, or whose offset overflows, becomes the centre.
    """
    limit, bits = norm_limit(lattice), norm_bits(lattice.dimension)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        units = (vectors - centre) / lattice.step
        units = np.where(np.isfinite(units).all(axis=1, keepdims=True), units, 0.0)
        # The norm of the coordinates rounded up to ``bits`` bits: its square is an exact integer in any order of
        # summation, and it is never too small.
        exponent = np.maximum(np.frexp(np.abs(units).max(axis=1, keepdims=True))[1], 1)
        squares = np.ceil(np.abs(units) * np.ldexp(1.0, bits - exponent)) ** 2
        norms = np.sqrt(squares.sum(axis=1, keepdims=True)) * np.ldexp(1.0, exponent - bits)
        clipped: IntArray = np.trunc(units * (limit / np.maximum(norms, limit))).astype(np.int64)
    return clipped
