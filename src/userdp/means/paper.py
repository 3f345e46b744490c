r"""Algorithm 2 of Asi & Liu (2023), to the letter: coin flips, its noise formula, its halting.

Per query q with vectors x_j = q(Z_j):

1. s = (1/n) #{(i, j) : |x_i - x_j| <= tau}. Unless AboveThreshold(s, epsilon/2, 4n/5) passes, output 0 and
   halt.
2. f_j = #{i : |x_j - x_i| <= 2 tau}; keep user j with probability 0 if f_j < n/2, 1 if f_j >= 2n/3, and
   (f_j - n/2)/(n/6) between.
3. Output the mean of the kept users plus N(0, sigma^2 I),
   sigma^2 = 8 tau^2 T log(e^epsilon T/delta) log(e^(epsilon/2)/delta) / (n^2 epsilon^2).

**Guarantee**: none that is certified. The paper claims (epsilon, delta)-DP for n >= 40 log(4T/delta)/epsilon,
but the score's sensitivity is 2(n-1)/n, not 1, and the noise formula leaves out constants of its own proof:
``docs/proofs/paper_constants.md``. For study and for reproducing rates.
"""

import math
import warnings
from dataclasses import dataclass, field

import numpy as np

from userdp.arrays import FloatArray, IntArray, is_finite
from userdp.errors import InvalidInputError, PrivacyWarning
from userdp.means.friends import friend_counts, weighted_mean
from userdp.means.interface import check_positive_rounds, check_query, check_rounds
from userdp.mechanisms.above_threshold import AboveThreshold
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.budget import LARGE_EPSILON, Budget
from userdp.privacy.statement import PrivacyStatement, Spend

# Continuous noise is laid on a lattice this many times finer than its scale.
FINENESS = 2.0**30


def noise_scale(tau: float, n_users: int, rounds: int, epsilon: float, delta: float) -> float:
    """Return sigma of Algorithm 2, line 10."""
    log_rounds = epsilon + math.log(rounds / delta)
    log_single = epsilon / 2 + math.log(1 / delta)
    return tau * math.sqrt(8 * rounds * log_rounds * log_single) / (n_users * epsilon)


def users_needed(rounds: int, epsilon: float, delta: float) -> float:
    """Return 40 log(4T/delta)/epsilon, the number of users the paper's theorem asks for."""
    return 40 * math.log(4 * rounds / delta) / epsilon


def keep_probabilities(counts: IntArray) -> FloatArray:
    """Return p_j of Algorithm 2 from the counts at radius 2 tau."""
    n = len(counts)
    ramp = (counts - n / 2) / (n / 6)
    return np.where(counts < n / 2, 0.0, np.where(counts >= 2 * n / 3, 1.0, ramp))


@dataclass(frozen=True)
class PaperMean:
    """Algorithm 2 with its numbers fixed; see :func:`calibrate`."""

    radius: float
    budget: Budget
    n_users: int
    dimension: int
    rounds: int

    def start(self, noise: NoiseSource) -> "PaperSession":
        """Open a session of ``rounds`` queries."""
        return PaperSession(self, noise)

    @property
    def noise_std(self) -> float:
        """Standard deviation of each answer's noise, per coordinate."""
        return noise_scale(self.radius, self.n_users, self.rounds, self.budget.epsilon, self.budget.delta)

    def statement(self, *, seeded: bool) -> PrivacyStatement:
        """State what the paper claims, marked as not certified."""
        budget = self.budget
        needed = math.ceil(users_needed(self.rounds, budget.epsilon, budget.delta))
        return PrivacyStatement.claim(
            budget,
            (
                Spend("AboveThreshold", epsilon=budget.epsilon / 2),
                Spend("means", epsilon=budget.epsilon / 2, delta=budget.delta),
            ),
            n_users=self.n_users,
            seeded=seeded,
            assumptions=(f"the paper's constants, which are not proven; at least {needed} users",),
        )


def calibrate(radius: float, n_users: int, dimension: int, budget: Budget, rounds: int) -> PaperMean:
    """Check the paper's conditions: epsilon < 10 (refused), enough users (a warning)."""
    if budget.epsilon >= LARGE_EPSILON:
        raise InvalidInputError(f"the paper's algorithm takes epsilon below 10, got {budget.epsilon:g}")
    if not (is_finite(radius) and radius > 0):
        raise InvalidInputError(f"radius must be a positive number, got {radius!r}")
    check_positive_rounds(rounds)
    needed = users_needed(rounds, budget.epsilon, budget.delta)
    if n_users < needed:
        warnings.warn(
            f"the paper claims its guarantee for at least {math.ceil(needed)} users, there are {n_users}",
            PrivacyWarning,
            stacklevel=2,
        )
    return PaperMean(radius, budget, n_users, dimension, rounds)


@dataclass
class PaperSession:
    """One run of Algorithm 2 over its adaptive queries."""

    mean: PaperMean
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    _answered: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        n = self.mean.n_users
        # The score is a multiple of 1/n: in units of 1/n its threshold is 4n^2/5 and the paper's
        # "sensitivity 1" is n.
        self._gate = AboveThreshold(
            self.mean.budget.epsilon / 2, threshold=-(-4 * n * n // 5), noise=self.noise, sensitivity=n
        )
        self._coins = self.noise.generator()

    @property
    def noise_std(self) -> float:
        """Standard deviation of each answer's noise, per coordinate."""
        return self.mean.noise_std

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query; zero from the halting one on."""
        check_rounds(self._answered, self.mean.rounds)
        x = check_query(vectors, self.mean.n_users, self.mean.dimension)
        self._answered += 1
        tau = self.mean.radius
        if not self.halted:
            pairs = int(friend_counts(x, tau).sum())
            self.halted = not self._gate.is_above(pairs)
        if self.halted:
            return np.zeros(self.mean.dimension)
        p = keep_probabilities(friend_counts(x, 2 * tau))
        kept = self._coins.random(self.mean.n_users) < p
        draws = self.noise.discrete_gaussian(FINENESS, self.mean.dimension)
        return weighted_mean(x, kept) + draws / FINENESS * self.noise_std

    def finish(self) -> PrivacyStatement:
        """State what the paper claims, marked as not certified."""
        return self.mean.statement(seeded=self.noise.seeded)
