r"""Bassily & Sun (2023): every round is a private concentrated mean of its own budget.

Round t is one (epsilon_i, delta_i)-DP mean of concentrated vectors, a black box; T rounds compose to
(epsilon, delta). So epsilon_i is of order epsilon/sqrt(T), and each round needs about 1/epsilon_i users: the
number of users must grow like sqrt(T)/epsilon. A check that all rounds share does not have that price
(``ConcentratedMean(gate="deferred")``).

The round is the library's certified mean with its Gaussian gate; the paper's own is FriendlyCore's filter.

**Guarantee**: (epsilon, delta)-DP for replacing one user; ``docs/proofs/bassily_sun_mean.md``.
"""

import math
from dataclasses import dataclass, field

from userdp.arrays import FloatArray
from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means import certified
from userdp.means.certified import CertifiedMean
from userdp.means.interface import (
    ReleasesOnce,
    check_positive_rounds,
    check_query,
    check_rounds,
    users_needed,
)
from userdp.means.pure_parts import PureParts, split_evenly
from userdp.means.sensitivity import ramp_start
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import Event, FailureEvent, gaussian_tail, total_failure
from userdp.privacy.budget import Budget
from userdp.privacy.calibration import INDEX_RESOLUTION, GaussianSetting
from userdp.privacy.statement import PrivacyStatement

# Half of delta pays for the rounds' own deltas, half for composing their epsilons.
_FAILURE_SHARE = 0.5
# Users that agree in every round may be turned away this often; with fewer users it is soon nearly always.
_HALTING = 0.5


@dataclass(frozen=True)
class BassilySunMean(ReleasesOnce):
    """Concentrated means whose rounds are bought one by one; needs about sqrt(rounds)/epsilon users.

    Parameters
    ----------
    radius : float
        Users within this distance of each other are friends; public.
    agreement : float
        Share of the users expected to be within ``radius`` of as large a share.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(1e6, 0.1, size=(2000, 3))
    >>> release = BassilySunMean(radius=1.0).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    >>> bool(abs(release.value - 1e6).max() < 0.05), release.privacy.certified
    (True, True)
    """

    radius: float
    agreement: float = 1.0

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> "CalibratedBassilySunMean":
        """Split the budget into ``rounds`` equal ones and calibrate a mean for each; reads no data.

        Users that agree in every round get all answers with probability 1/2 or more.

        Raises
        ------
        TooFewUsersError
            With the number of users that so many rounds need for that, within 2%.
        """
        check_positive_rounds(rounds)
        delta = (budget.delta - total_failure(beside)) * _FAILURE_SHARE
        if delta <= 0:
            raise InvalidInputError("the other parts of the release leave no delta for the means")
        failures = FailureEvent("rounds' own delta", delta)
        parts = split_evenly("concentrated means", rounds, budget, (*beside, failures))
        round_budget = Budget(parts.epsilon, delta / rounds * (1 - 1e-12), budget.unit)

        def are_enough(n: int) -> bool:
            gate = certified.possible_setting(n, round_budget, "gaussian", agreement=self.agreement)
            return (
                isinstance(gate, GaussianSetting)
                and halting_bound(gate, n, int(self.agreement * n), rounds) <= _HALTING
            )

        if not are_enough(n_users):
            raise TooFewUsersError(
                f"{rounds} rounds at epsilon = {budget.epsilon:g}, delta = {budget.delta:g} leave each round "
                f"epsilon = {parts.epsilon:.3g}, and {n_users} users are too few to get through all of them; it takes "
                f"at least {users_needed(n_users, are_enough)}, or a larger epsilon, or fewer rounds"
            )
        mean = certified.calibrate(
            self.radius, n_users, dimension, round_budget, gate="gaussian", agreement=self.agreement
        )
        return CalibratedBassilySunMean(budget, n_users, rounds, mean, parts, failures, beside)


def halting_bound(gate: GaussianSetting, n_users: int, index: int, rounds: int) -> float:
    """Bound the probability that any of ``rounds`` rounds halts where each has concentration ``index`` or more.

    A round goes on if H = floor((h resolution + noise - margin)/resolution) is at least two beyond the ramp's start,
    which is so unless the noise is below minus the slack that h leaves.
    """
    slack = INDEX_RESOLUTION * (index - ramp_start(n_users) - 2) - gate.margin
    return min(1.0, rounds * gaussian_tail(slack + 1, gate.scale)) if slack >= 0 else 1.0


def paper_users(rounds: int, epsilon: float, delta: float) -> float:
    """Return sqrt(T log(1/delta))/epsilon: the paper asks for more users than this times a constant."""
    return math.sqrt(rounds * math.log(1 / delta)) / epsilon


@dataclass(frozen=True)
class CalibratedBassilySunMean:
    """One certified mean at a round's budget, and what ``rounds`` of them cost together."""

    budget: Budget
    n_users: int
    rounds: int
    mean: CertifiedMean
    parts: PureParts
    failures: FailureEvent
    beside: tuple[Event, ...]

    def start(self, noise: NoiseSource) -> "BassilySunSession":
        """Open a session of the calibrated rounds."""
        return BassilySunSession(self, noise)


@dataclass
class BassilySunSession:
    """One run over adaptive queries; every answer may leave at once, the first failing round ends it."""

    mean: CalibratedBassilySunMean
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    noise_std: float = field(default=math.nan, init=False)
    _answered: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query with a fresh mechanism at the round's budget."""
        mean = self.mean
        if self._closed:
            raise InvalidInputError("this session is over; a new one costs its budget again")
        check_rounds(self._answered, mean.rounds)
        x = check_query(vectors, mean.n_users, mean.mean.lattice.dimension)
        self._answered += 1
        session = mean.mean.start(self.noise)
        try:
            value = session.answer(x)
        except NotConcentratedError:
            self.halted = self._closed = True
            raise
        self.noise_std = session.noise_std
        session.finish()
        return value

    def finish(self) -> PrivacyStatement:
        """Close the session and state the guarantee, with the number of users the rounds needed."""
        mean, budget = self.mean, self.mean.budget
        self._closed = True
        asked = math.ceil(paper_users(mean.rounds, budget.epsilon, budget.delta))
        return PrivacyStatement.certify(
            budget,
            (*mean.beside, mean.failures, *mean.parts.events),
            n_users=mean.n_users,
            seeded=self.noise.seeded,
            assumptions=(
                f"enough users for {mean.rounds} rounds (checked: {mean.n_users:,} that agree get all answers with "
                "probability 1/2 or more; the paper asks for a constant times sqrt(T log(1/delta))/epsilon = "
                f"{asked:,})",
            ),
        )
