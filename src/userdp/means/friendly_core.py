r"""FriendlyCore (Tsfadia, Cohen, Kaplan, Mansour & Stemmer 2022): a core of friends, a noisy count, a mean.

With friend counts f_j at radius r, lo = ceil(n/2), and the longest ramp, which ends at n,

    w_j = max(0, f_j - lo)/(n - lo),     W = sum_j w_j,     g = sum_j w_j x_j / W.

W changes by at most 1 + L between neighbours, L = (n - 1)/(n - lo) <= 2, so a noisy W minus a margin is a
lower bound W_- for it, and g moves by at most Delta(W_-), about 4 r/W_-. Release g plus Gaussian noise of
that scale. Nothing is asked of the data beyond W: the price is 4 r/n where the certified concentrated mean
pays 2 r/n, since any number of users may sit on the ramp. The paper keeps user j by a coin of bias w_j; here
w_j is a weight, and every constant is proven.

**Guarantee**: (epsilon, delta)-DP for replacing one user; ``docs/proofs/friendly_core_mean.md``.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from userdp.arrays import FloatArray
from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means.friends import friend_counts, ramp_numerators
from userdp.means.interface import (
    ReleasesOnce,
    check_positive_rounds,
    check_query,
    check_rounds,
    users_needed,
)
from userdp.means.lattice import Lattice
from userdp.means.sensitivity import ramp_start
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import (
    Event,
    FailureEvent,
    GaussianEvent,
    gaussian_scale,
    gaussian_tail,
    mu_beside,
    total_failure,
)
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement

# Shares of delta for the count's failure and of mu^2 for its noise, among which the best pair is taken.
_FAILURE_SHARES = np.geomspace(1e-3, 0.5, 10)
_COUNT_SHARES = np.geomspace(1e-3, 0.7, 30)
_COUNT_RESOLUTION = 2**10
_NOT_CONCENTRATED = (
    "too few users lie within the radius of most others, so nothing is released; the budget is spent. "
    "Use a larger radius, or clip instead"
)


def core_sensitivity(weight: float, n_users: int, radius: float) -> float:
    r"""Bound |g - g'| between neighbours of which at least one has total weight W >= ``weight``.

        Delta = r [2 + min(2 L, L + (n - V)/V)] / W,    L = (n - 1)/(n - lo),    V = W - 1 - L.

    Infinite where no bound is proven: fewer than 4 users, or W <= 1 + L.

    Examples
    --------
    >>> round(core_sensitivity(weight=1000, n_users=1000, radius=1.0) * 1000, 2)
    4.0
    """
    n, lo = n_users, ramp_start(n_users)
    if n < 4:
        return math.inf
    L = (n - 1) / (n - lo)
    if weight <= (1 + L) * (1 + 1e-12):
        return math.inf
    V = weight - 1 - L
    return radius * (2 + min(2 * L, L + (n - V) / V)) / weight * (1 + 1e-12)


@dataclass(frozen=True)
class FriendlyCoreMean(ReleasesOnce):
    """Mean of the users who are friends of more than half of all, weighted by how many.

    Parameters
    ----------
    radius : float
        Users within this distance of each other are friends; public.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(1e6, 0.1, size=(2000, 3))   # far away, and close together
    >>> release = FriendlyCoreMean(radius=1.0).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    >>> bool(abs(release.value - 1e6).max() < 0.2), release.privacy.certified
    (True, True)
    """

    radius: float

    def calibrate(
        self, n_users: int, dimension: int, budget: Budget, rounds: int = 1, beside: tuple[Event, ...] = ()
    ) -> "CalibratedFriendlyCoreMean":
        """Set the noise of count and mean for ``rounds`` adaptive queries; reads no data.

        Raises
        ------
        TooFewUsersError
            With the number of users that would do.
        """
        check_positive_rounds(rounds)

        def setting_for(n: int) -> CountSetting | None:
            return _best_setting(n, budget, rounds, beside)

        setting = setting_for(n_users)
        if setting is None:
            raise TooFewUsersError(
                f"{n_users} users are too few for a friendly core at epsilon = {budget.epsilon:g}, "
                f"delta = {budget.delta:g} over {rounds} rounds; it takes at least "
                f"{users_needed(n_users, lambda n: setting_for(n) is not None)}, or a larger epsilon"
            )
        lattice = Lattice.fine_enough(self.radius, n_users, dimension)
        return CalibratedFriendlyCoreMean(budget, n_users, lattice, setting, beside)


@dataclass(frozen=True)
class CountSetting:
    """The noisy total weight: numerators times ``resolution``, noise of ``scale``, minus ``margin``."""

    n_users: int
    rounds: int
    scale: float
    margin: int
    mean_mu: float

    @cached_property
    def full_weight(self) -> int:
        """Numerator of weight 1: n - lo."""
        return self.n_users - ramp_start(self.n_users)

    @cached_property
    def resolution(self) -> int:
        """Units per numerator unit, so that a user's weight is at least 1024 of them."""
        return _resolution(self.n_users)

    @property
    def events(self) -> tuple[Event, ...]:
        """What the counts cost; the means cost ``mean_mu`` on top."""
        failure = self.rounds * gaussian_tail(self.margin + self.resolution, self.scale)
        return (
            GaussianEvent(
                "count of the core", _count_sensitivity(self.n_users), self.scale, rounds=self.rounds
            ),
            FailureEvent("count errs upwards", failure),
        )

    def weight(self, noisy: int) -> float:
        """Lower bound on W from the released noisy count; never above n."""
        numerator = min((noisy - self.margin) // self.resolution, self.n_users * self.full_weight)
        return numerator / self.full_weight * (1 - 1e-15)


def _resolution(n_users: int) -> int:
    return -(-_COUNT_RESOLUTION // (n_users - ramp_start(n_users)))


def _count_sensitivity(n_users: int) -> int:
    """Sensitivity of the count in its units: one user's whole weight, and one step of all others."""
    full = n_users - ramp_start(n_users)
    return _resolution(n_users) * (full + n_users - 1)


def _best_setting(
    n_users: int, budget: Budget, rounds: int, beside: tuple[Event, ...]
) -> CountSetting | None:
    """Minimise the noise that users who all agree get, at the median of the count's noise."""
    if n_users < 4:
        return None
    best, least = None, math.inf
    left = budget.delta - total_failure(beside)
    full = n_users * (n_users - ramp_start(n_users))
    for failure_share in _FAILURE_SHARES if left > 0 else ():
        failure = left * float(failure_share)
        mu = mu_beside((*beside, FailureEvent("count", failure)), budget.epsilon, budget.delta)
        if mu == 0:
            continue
        for share in _COUNT_SHARES:
            scale = gaussian_scale(_count_sensitivity(n_users), mu * math.sqrt(share), rounds)
            reach = math.ceil(1 - float(ndtri(failure / rounds * (1 - 1e-9))) * scale)
            margin = max(0, reach - _resolution(n_users))
            mean_mu = mu * math.sqrt(1 - share) * (1 - 1e-12)
            setting = CountSetting(n_users, rounds, scale, margin, mean_mu)
            cost = core_sensitivity(setting.weight(full * setting.resolution), n_users, 1.0) / mean_mu
            if cost < least:
                best, least = setting, cost
    return best


@dataclass(frozen=True)
class CalibratedFriendlyCoreMean:
    """A friendly core with the noise of its count set; that of its mean follows the released count."""

    budget: Budget
    n_users: int
    lattice: Lattice
    setting: CountSetting
    beside: tuple[Event, ...]

    @property
    def rounds(self) -> int:
        """How many queries are paid for."""
        return self.setting.rounds

    def start(self, noise: NoiseSource) -> "FriendlyCoreSession":
        """Open a session of the calibrated rounds."""
        return FriendlyCoreSession(self, noise)

    def mean_event(self, weight: float) -> GaussianEvent:
        """Return the cost of all rounds' answers at a weight; its mu never exceeds the setting's."""
        sensitivity = self.lattice.answer_sensitivity(core_sensitivity(weight, self.n_users, radius=1.0))
        scale = gaussian_scale(sensitivity, self.setting.mean_mu, self.setting.rounds)
        return GaussianEvent("mean", sensitivity, scale, self.lattice.dimension, self.setting.rounds)


@dataclass
class FriendlyCoreSession:
    """One run over adaptive queries; every answer may leave at once, the first small core ends it."""

    mean: CalibratedFriendlyCoreMean
    noise: NoiseSource
    halted: bool = field(default=False, init=False)
    _answered: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._weight = float(self.mean.n_users)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last answer's noise, per coordinate."""
        return self.mean.mean_event(self._weight).scale * self.mean.lattice.answer_step

    def answer(self, vectors: FloatArray) -> FloatArray:
        """Answer one query."""
        mean, lattice, n = self.mean, self.mean.lattice, self.mean.n_users
        setting = mean.setting
        if self._closed:
            raise InvalidInputError("this session is over; a new one costs its budget again")
        check_rounds(self._answered, setting.rounds)
        units = lattice.round(check_query(vectors, n, lattice.dimension))
        self._answered += 1
        numerators = ramp_numerators(friend_counts(units, lattice.radius_units), lo=ramp_start(n), hi=n)
        count = setting.resolution * int(numerators.sum())
        weight = setting.weight(count + int(self.noise.discrete_gaussian(setting.scale, 1)[0]))
        if core_sensitivity(weight, n, radius=1.0) == math.inf:
            self.halted = self._closed = True
            raise NotConcentratedError(_NOT_CONCENTRATED)
        self._weight = weight
        whole, fraction = lattice.mean(units, numerators)
        return lattice.value(
            whole, fraction + self.noise.discrete_gaussian(mean.mean_event(weight).scale, lattice.dimension)
        )

    def finish(self) -> PrivacyStatement:
        """Close the session and state the guarantee."""
        mean = self.mean
        self._closed = True
        events = (*mean.beside, *mean.setting.events, mean.mean_event(self._weight))
        return PrivacyStatement.certify(mean.budget, events, n_users=mean.n_users, seeded=self.noise.seeded)
