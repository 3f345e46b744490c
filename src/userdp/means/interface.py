"""What every mean estimator offers, so that one can stand in for another.

``estimator.calibrate(...)`` turns public numbers into a :class:`CalibratedMean`; ``calibrated.start(noise)``
opens a :class:`Session` that answers its rounds of adaptive queries; ``session.finish()`` closes it and
states what the answers cost. Estimators are configuration and hold public knowledge only; data and noise are
arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray, as_numeric_table
from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.privacy.accounting import Event
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class MeanRelease:
    """A private mean and what it cost.

    Attributes
    ----------
    value : array of shape (dimension,)
        The released mean.
    noise_std : array of shape (dimension,)
        Standard deviation of the noise on each coordinate.
    radius : float
        The radius the noise was scaled to, in units; given by the caller or found privately.
    units : array of shape (dimension,)
        What one unit of each coordinate is: a power of two that ``userdp.mean`` found privately, else 1.
    privacy : PrivacyStatement
        The guarantee.
    halted : bool
        Whether an algorithm that halts as the paper's did so; the value is then its default, zero.
    """

    value: FloatArray
    noise_std: FloatArray
    radius: float
    units: FloatArray
    privacy: PrivacyStatement
    halted: bool = False


class Session(Protocol):
    """One run of a calibrated mean over its rounds."""

    halted: bool

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query: a row per user, null users as rows of NaN."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last answer's noise, per coordinate."""

    def finish(self) -> PrivacyStatement:
        """Close the session; only now may a deferred mechanism's answers leave."""


class CalibratedMean(Protocol):
    """A mean estimator with its noise set for a number of users, a dimension, a budget and rounds."""

    @property
    def rounds(self) -> int:
        """How many adaptive queries are paid for."""

    def start(self, noise: NoiseSource) -> Session:
        """Open a session; each one costs the whole budget."""


@runtime_checkable
class MeanEstimator(Protocol):
    """A mean estimator's configuration."""

    @property
    def radius(self) -> float:
        """The radius its noise is scaled to."""

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> CalibratedMean:
        """Set the noise for ``rounds`` adaptive queries; ``beside`` is what the release spends elsewhere."""


class ReleasesOnce:
    """A single release of an estimator: calibrate, answer one query, close."""

    def release(
        self: MeanEstimator,
        vectors: ArrayLike,
        *,
        epsilon: float,
        delta: float,
        unit: str = "user",
        random_state: int | np.random.Generator | None = None,
    ) -> MeanRelease:
        """Release one mean of ``vectors``, a row per user (null users as rows of NaN).

        Raises
        ------
        NotConcentratedError
            If an estimator that needs agreement does not find it; the budget is then spent. (The paper's
            algorithm returns zero with ``halted=True`` instead.)
        """
        x = as_vectors(vectors)
        noise = noise_source(random_state)
        budget = Budget(epsilon, delta, unit)
        budget.warn_if_weak_for(len(x))
        session = self.calibrate(len(x), x.shape[1], budget).start(noise)
        value = session.answer(x)
        privacy = session.finish()
        ones = np.ones(len(value))
        return MeanRelease(value, session.noise_std * ones, self.radius, ones, privacy, session.halted)


def as_vectors(vectors: ArrayLike) -> FloatArray:
    """Check the type and shape of users' vectors; values are never looked at."""
    return as_numeric_table(vectors, "vectors", "(n_users, dimension)")


def as_centre(centre: ArrayLike | None, dimension: int) -> FloatArray:
    """Check a public centre; the origin by default."""
    try:
        found = np.zeros(dimension) if centre is None else np.asarray(centre, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"centre must be {dimension} finite numbers, got {centre!r}") from None
    if found.shape != (dimension,) or not np.isfinite(found).all():
        raise InvalidInputError(f"centre must be {dimension} finite numbers, got shape {found.shape}")
    return found


def check_query(vectors: FloatArray, n_users: int, dimension: int) -> FloatArray:
    """Refuse a query whose shape is not the one the noise was calibrated for."""
    x = as_vectors(vectors)
    if x.shape != (n_users, dimension):
        raise InvalidInputError(
            f"the noise was calibrated for vectors of shape {(n_users, dimension)}, got {x.shape}"
        )
    return x


def check_positive_rounds(rounds: int) -> None:
    """Refuse to calibrate for no rounds at all."""
    if rounds < 1:
        raise InvalidInputError(f"rounds must be at least 1, got {rounds}")


def check_rounds(answered: int, rounds: int) -> None:
    """Refuse a query beyond those that were paid for."""
    if answered >= rounds:
        raise InvalidInputError(f"all {rounds} rounds of this budget are answered; calibrate for more rounds")


def users_needed(n_users: int, are_enough: Callable[[int], bool]) -> str:
    """Find the smallest sufficient number of users beyond ``n_users``, within 2%, in words."""
    low, high = n_users, max(2 * n_users, 8)
    while not are_enough(high):
        low, high = high, 2 * high
        if high > 2**40:
            return "more than any number of users"
    while high - low > max(1, high // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if are_enough(middle) else (middle, high)
    return str(high)
