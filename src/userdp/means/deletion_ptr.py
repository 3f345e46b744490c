r"""Ghazi et al. (2023): propose a sensitivity to deletions, test it on all subsets, release.

The mean may be sensitive to a replaced user on one data set and not on a subset of it. Propose a sensitivity
to single deletions; find r*, the fewest deletions that leave a set S on which it holds, also after further
deletions (:mod:`userdp.means.deletions`); if r* plus Laplace noise is small, release the mean of S plus
Gaussian noise. Looking at all subsets takes sum_(i<R) C(n, i) steps, R of order log(1/delta)/epsilon:
super-polynomial, for tiny n (and large epsilon) only.

**Guarantee**: (epsilon, delta)-DP for replacing one user; ``docs/proofs/deletion_ptr.md``.
"""

import math
from dataclasses import dataclass, field

from userdp.arrays import FloatArray
from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means.deletions import MAX_USERS, DeletionTest, farthest_in_calm_set, fewest_deletions
from userdp.means.interface import ReleasesOnce, check_positive_rounds, check_query, check_rounds
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource, laplace_scale
from userdp.privacy.accounting import (
    Event,
    FailureEvent,
    GaussianEvent,
    PureEvent,
    gaussian_scale,
    mu_beside,
    total_epsilon,
    total_failure,
)
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement

# Shares of what is left of delta and epsilon that the tests get.
_FAILURE_SHARE = 0.5
_INT64 = 2**62
_NOT_CONCENTRATED = (
    "the mean moves too much when users are deleted, so nothing is released; the budget is spent. "
    "Use a larger radius, or clip instead"
)


@dataclass(frozen=True)
class DeletionPTR(ReleasesOnce):
    """Mean of a subset that no few deletions move, found by looking at all subsets.

    Parameters
    ----------
    radius : float
        Distance within which users are expected of each other; public. The proposed sensitivity to one
        deletion is radius/(n - R + 1), which users within ``radius`` of each other never exceed.
    test_share : float
        Share of epsilon that the tests get; the rest is for the noise on the mean.
    max_subsets : int
        Refuse to look at more subsets than this.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(1e3, 0.1, size=(16, 2))
    >>> release = DeletionPTR(radius=1.0).release(x, epsilon=8.0, delta=1e-4, random_state=0)
    >>> bool(abs(release.value - 1e3).max() < 2), release.privacy.certified
    (True, True)
    """

    radius: float
    test_share: float = 0.5
    max_subsets: int = 200_000

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> "CalibratedDeletionPTR":
        """Set test and noise for ``rounds`` adaptive queries; reads no data.

        Raises
        ------
        TooFewUsersError
            If deleting as many users as the test has to would leave none.
        InvalidInputError
            If the subsets are too many; says how many they are.
        """
        check_positive_rounds(rounds)
        if not 0 < self.test_share < 1:
            raise InvalidInputError(f"test_share must lie strictly between 0 and 1, got {self.test_share!r}")
        epsilon = (budget.epsilon - total_epsilon(beside)) * self.test_share / rounds
        failure = (budget.delta - total_failure(beside)) * _FAILURE_SHARE / rounds
        if not (epsilon > 0 and failure > 0):
            raise InvalidInputError("the other parts of the release leave no budget for the tests")
        test = DeletionTest.for_budget(epsilon, failure, n_users)
        if n_users <= test.depth:
            raise TooFewUsersError(
                f"{n_users} users are too few, since the test deletes up to {test.depth}; it takes at least "
                f"{test.depth + 1} (and about 2^{test.depth + 1} subsets), or a larger epsilon or delta"
            )
        if test.subsets > self.max_subsets or n_users > MAX_USERS:
            raise InvalidInputError(
                f"{n_users} users at epsilon = {budget.epsilon:g}, delta = {budget.delta:g} take "
                f"{_readable(test.subsets)} subsets a round; the limit is {self.max_subsets:,} subsets of {MAX_USERS} "
                "users. Use ConcentratedMean instead"
            )
        lattice = Lattice.fine_enough(self.radius, n_users, dimension)
        far = farthest_in_calm_set(test, lattice)
        if max(dimension * (far + 1) ** 2, 2 * (n_users * far * test.smallest) ** 2) > _INT64:
            raise InvalidInputError(
                f"{n_users} users in dimension {dimension:,} do not fit exact 64-bit sums of squares"
            )
        tests = (PureEvent("deletion test", epsilon * rounds), FailureEvent("test errs", failure * rounds))
        mu = mu_beside((*beside, *tests), budget.epsilon, budget.delta)
        if mu == 0:
            raise InvalidInputError("the other parts of the release leave no budget for the mean")
        sensitivity = lattice.answer_sensitivity(test.mean_sensitivity(radius=1.0))
        scale = gaussian_scale(sensitivity, mu * (1 - 1e-12), rounds)
        event = GaussianEvent("mean", sensitivity, scale, dimension, rounds)
        return CalibratedDeletionPTR(budget, lattice, test, (*beside, *tests), event)


def _readable(count: int) -> str:
    return f"{count:,}" if count < 10**12 else f"about 10^{math.floor(math.log10(count))}"


@dataclass(frozen=True)
class CalibratedDeletionPTR:
    """The test and the noise on the mean, set; ``others`` are all events but the mean's."""

    budget: Budget
    lattice: Lattice
    test: DeletionTest
    others: tuple[Event, ...]
    event: GaussianEvent

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.event.rounds

    def start(self, noise: NoiseSource) -> "DeletionSession":
        """Open a session of the calibrated rounds."""
        return DeletionSession(self, noise)


@dataclass
class DeletionSession:
    """One run over adaptive queries; every answer may leave at once, the first failing test ends it."""

    mean: CalibratedDeletionPTR
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    _answered: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def noise_std(self) -> float:
        """Standard deviation of each answer's noise, per coordinate."""
        return self.mean.event.scale * self.mean.lattice.answer_step

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query."""
        mean, lattice, test = self.mean, self.mean.lattice, self.mean.test
        if self._closed:
            raise InvalidInputError("this session is over; a new one costs its budget again")
        check_rounds(self._answered, mean.event.rounds)
        units = lattice.round(check_query(vectors, test.n_users, lattice.dimension))
        self._answered += 1
        deletions, weights = fewest_deletions(units, test, lattice)
        noisy = deletions + int(self.noise.discrete_laplace(laplace_scale(1, test.epsilon), 1)[0])
        if noisy > test.threshold:
            self.halted = self._closed = True
            raise NotConcentratedError(_NOT_CONCENTRATED)
        whole, fraction = lattice.mean(units, weights)
        return lattice.value(
            whole, fraction + self.noise.discrete_gaussian(mean.event.scale, lattice.dimension)
        )

    def finish(self) -> PrivacyStatement:
        """Close the session and state the guarantee."""
        mean = self.mean
        self._closed = True
        return PrivacyStatement.certify(
            mean.budget,
            (*mean.others, mean.event),
            n_users=mean.test.n_users,
            seeded=self.noise.seeded,
        )
