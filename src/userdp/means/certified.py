r"""The certified concentrated mean: a ramp over friend counts, three gates, every constant proven.

With friend counts f_j at radius r, the public H, lo = ceil(n/2) and hi = H - 1,

    w_j = clip((f_j - lo)/(hi - lo), 0, 1),     g = sum_j w_j x_j / sum_j w_j,

and the answer is g plus discrete Gaussian noise scaled to Delta_H (:mod:`userdp.means.sensitivity`), on the
lattice of :mod:`userdp.means.lattice`. Delta_H holds while the concentration index h of the data, or of its
neighbour, is at least H; one of three gates sees to that (:mod:`userdp.privacy.calibration`).

**Guarantee**: (epsilon, delta)-DP for replacing one user; ``docs/proofs/concentrated_mean.md``, ``gates.md``.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from userdp.arrays import FloatArray, IntArray
from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means.friends import concentration_index, friend_counts, ramp_numerators
from userdp.means.interface import Session, check_positive_rounds, check_query, check_rounds, users_needed
from userdp.means.lattice import Lattice
from userdp.means.sensitivity import mean_sensitivity, ramp_start
from userdp.mechanisms.above_threshold import OneSidedAboveThreshold
from userdp.mechanisms.gates import DeferredGate, GaussianGate
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy import calibration
from userdp.privacy.accounting import Event, GaussianEvent, gaussian_scale
from userdp.privacy.budget import Budget
from userdp.privacy.calibration import INDEX_RESOLUTION, DeferredSetting, GaussianSetting, OneSidedSetting
from userdp.privacy.statement import PrivacyStatement

GateName: TypeAlias = Literal["deferred", "one-sided", "gaussian"]
GateSetting: TypeAlias = DeferredSetting | OneSidedSetting | GaussianSetting

NOT_CONCENTRATED = (
    "the users' vectors are not concentrated within the radius, so nothing is released; the budget is spent. "
    "Use a larger radius, expect a smaller share of the users to agree, or clip instead"
)


@dataclass(frozen=True)
class CertifiedMean:
    """A concentrated mean whose gate and noise are set; see :func:`calibrate`."""

    budget: Budget
    n_users: int
    rounds: int
    lattice: Lattice
    setting: GateSetting
    beside: tuple[Event, ...]
    purpose: str = "mean"

    def start(self, noise: NoiseSource) -> Session:
        """Open a session of ``rounds`` queries; each session costs the whole budget."""
        match self.setting:
            case DeferredSetting():
                return _DeferredSession(self, noise, self.setting)
            case OneSidedSetting():
                return _OneSidedSession(self, noise, self.setting)
            case GaussianSetting():
                return _GaussianSession(self, noise, self.setting)

    def mean_event(self, index: int) -> GaussianEvent:
        """Return the cost of all rounds' answers at index H; its mu never exceeds the setting's."""
        sensitivity = self.lattice.answer_sensitivity(mean_sensitivity(index, self.n_users, radius=1.0))
        scale = gaussian_scale(sensitivity, self.setting.mean_mu, self.rounds)
        return GaussianEvent(self.purpose, sensitivity, scale, self.lattice.dimension, self.rounds)

    def with_radius(self, radius: float) -> "CertifiedMean":
        """Return the same calibration at another radius: costs do not depend on it."""
        return replace(self, lattice=Lattice.fine_enough(radius, self.n_users, self.lattice.dimension))

    def noise_std(self, index: int) -> float:
        """Return the standard deviation of an answer's noise at index H, per coordinate."""
        return self.mean_event(index).scale * self.lattice.answer_step

    def statement(self, index: int, *, seeded: bool) -> PrivacyStatement:
        """State the guarantee of a whole session."""
        events = (*self.beside, *self.setting.events, self.mean_event(index))
        return PrivacyStatement.certify(self.budget, events, n_users=self.n_users, seeded=seeded)


def calibrate(
    radius: float,
    n_users: int,
    dimension: int,
    budget: Budget,
    *,
    gate: GateName = "deferred",
    rounds: int = 1,
    agreement: float = 1.0,
    beside: tuple[Event, ...] = (),
) -> CertifiedMean:
    """Choose H, the split of the budget and the noise; read no data.

    Parameters
    ----------
    agreement : float
        Share of the users expected to lie within ``radius`` of as large a share of the others; the gate
        lets such data pass (with probability 0.999 for the whole run where the gate is a threshold).

    Raises
    ------
    TooFewUsersError
        With the number of users that would do.
    """
    setting = gate_setting(n_users, budget, gate=gate, rounds=rounds, agreement=agreement, beside=beside)
    lattice = Lattice.fine_enough(radius, n_users, dimension)
    return CertifiedMean(budget, n_users, rounds, lattice, setting, beside)


def gate_setting(
    n_users: int,
    budget: Budget,
    *,
    gate: GateName = "deferred",
    rounds: int = 1,
    agreement: float = 1.0,
    beside: tuple[Event, ...] = (),
) -> GateSetting:
    """Choose H and the split of the budget for a gate; see :func:`calibrate`."""

    def setting_for(n: int) -> GateSetting | None:
        return possible_setting(n, budget, gate, rounds, agreement, beside)

    setting = setting_for(n_users)
    if setting is None:
        raise TooFewUsersError(
            f"{n_users} users are too few for a concentrated mean at epsilon = {budget.epsilon:g}, "
            f"delta = {budget.delta:g}; it takes at least "
            f"{users_needed(n_users, lambda n: setting_for(n) is not None)}, or a larger epsilon"
        )
    return setting


def deferred_setting(n_users: int, budget: Budget) -> DeferredSetting:
    """Choose H and the split of the budget for the deferred gate, which serves any number of rounds."""
    setting = gate_setting(n_users, budget, gate="deferred")
    assert isinstance(setting, DeferredSetting)
    return setting


@lru_cache(maxsize=128)
def possible_setting(
    n_users: int,
    budget: Budget,
    gate: GateName,
    rounds: int = 1,
    agreement: float = 1.0,
    beside: tuple[Event, ...] = (),
) -> GateSetting | None:
    """Choose H and the split of the budget for a gate; None if users are too few."""
    check_positive_rounds(rounds)
    if not 0.5 < agreement <= 1:
        raise InvalidInputError(f"agreement must lie in (0.5, 1], got {agreement!r}")
    expected_index = int(agreement * n_users)

    def sensitivity(index: int) -> float:
        return mean_sensitivity(index, n_users, radius=1.0)

    try:
        match gate:
            case "deferred":
                return calibration.deferred(budget, expected_index, sensitivity, beside=beside)
            case "one-sided":
                return calibration.one_sided(
                    budget, expected_index, sensitivity, rounds=rounds, beside=beside
                )
            case "gaussian":
                return calibration.gaussian(budget, expected_index, sensitivity, rounds=rounds, beside=beside)
    except TooFewUsersError:
        return None
    raise InvalidInputError(f'gate must be "deferred", "one-sided" or "gaussian", got {gate!r}')


@dataclass
class _Rounds:
    """What the three sessions share: exact means of queries, and their noise."""

    mean: CertifiedMean
    noise: NoiseSource
    closed: bool = field(default=False, init=False)
    answered: int = field(default=0, init=False)

    def friends_of(self, vectors: FloatArray) -> tuple[FloatArray, IntArray]:
        """Put a query on the lattice and count friends."""
        lattice = self.mean.lattice
        if self.closed:
            raise InvalidInputError("this session is over; a new one costs its budget again")
        check_rounds(self.answered, self.mean.rounds)
        units = lattice.round(check_query(vectors, self.mean.n_users, lattice.dimension))
        self.answered += 1
        return units, friend_counts(units, lattice.radius_units)

    def noisy_mean(self, units: FloatArray, counts: IntArray, index: int) -> FloatArray:
        """Weigh, average and add noise for the index H."""
        lattice = self.mean.lattice
        weights = ramp_numerators(counts, lo=ramp_start(self.mean.n_users), hi=index - 1)
        whole, fraction = lattice.mean(units, weights)
        noise = self.noise.discrete_gaussian(self.mean.mean_event(index).scale, lattice.dimension)
        return lattice.value(whole, fraction + noise)


class _DeferredSession:
    """Answers stay inside until :meth:`finish` has passed the gate."""

    def __init__(self, mean: CertifiedMean, noise: NoiseSource, setting: DeferredSetting) -> None:
        self._rounds = _Rounds(mean, noise)
        self._gate = DeferredGate(INDEX_RESOLUTION, setting.scale, setting.threshold, noise)
        self._index = setting.index
        self.halted = False

    @property
    def noise_std(self) -> float:
        return self._rounds.mean.noise_std(self._index)

    def answer(self, vectors: FloatArray) -> FloatArray:
        units, counts = self._rounds.friends_of(vectors)
        self._gate.observe(concentration_index(counts))
        return self._rounds.noisy_mean(units, counts, self._index)

    def finish(self) -> PrivacyStatement:
        self._rounds.closed = True
        if not self._gate.passes():
            raise NotConcentratedError(NOT_CONCENTRATED)
        return self._rounds.mean.statement(self._index, seeded=self._rounds.noise.seeded)


class _OneSidedSession:
    """Every answer may leave at once; the first failing round ends the session."""

    def __init__(self, mean: CertifiedMean, noise: NoiseSource, setting: OneSidedSetting) -> None:
        self._rounds = _Rounds(mean, noise)
        self._gate = OneSidedAboveThreshold(
            setting.threshold_epsilon, setting.query_epsilon, setting.threshold, noise
        )
        self._index = setting.index
        self.halted = False

    @property
    def noise_std(self) -> float:
        return self._rounds.mean.noise_std(self._index)

    def answer(self, vectors: FloatArray) -> FloatArray:
        units, counts = self._rounds.friends_of(vectors)
        if not self._gate.is_above(concentration_index(counts)):
            self.halted = self._rounds.closed = True
            raise NotConcentratedError(NOT_CONCENTRATED)
        return self._rounds.noisy_mean(units, counts, self._index)

    def finish(self) -> PrivacyStatement:
        self._rounds.closed = True
        return self._rounds.mean.statement(self._index, seeded=self._rounds.noise.seeded)


class _GaussianSession:
    """Every answer may leave at once; each round's H follows its released noisy index."""

    def __init__(self, mean: CertifiedMean, noise: NoiseSource, setting: GaussianSetting) -> None:
        self._rounds = _Rounds(mean, noise)
        self._gate = GaussianGate(INDEX_RESOLUTION, setting.scale, noise)
        self._setting = setting
        self._index = mean.n_users
        self.halted = False

    @property
    def noise_std(self) -> float:
        return self._rounds.mean.noise_std(self._index)

    def answer(self, vectors: FloatArray) -> FloatArray:
        n = self._rounds.mean.n_users
        units, counts = self._rounds.friends_of(vectors)
        noisy_index = self._gate.noisy_index(concentration_index(counts))
        index = min(self._setting.index(noisy_index), n)
        if index - 1 <= ramp_start(n):
            self.halted = self._rounds.closed = True
            raise NotConcentratedError(NOT_CONCENTRATED)
        self._index = index
        return self._rounds.noisy_mean(units, counts, index)

    def finish(self) -> PrivacyStatement:
        self._rounds.closed = True
        return self._rounds.mean.statement(self._index, seeded=self._rounds.noise.seeded)
