r"""How much noise: the settings of each gate that make a concentrated mean fit its budget.

A concentrated mean of sensitivity Delta_H may be released while the concentration index h of the data is
at least H. The gate that checks this costs budget too. Each function below splits the budget between the
gate, its failure probability and the means so that Delta_H / mu of the means is smallest, and picks H such
that data of index ``expected_index`` passes with ``pass_probability``. Every rounding is towards more noise.

======================  ====================================================  ===================
gate                    what leaves                                           cost in the rounds
======================  ====================================================  ===================
:func:`deferred`        only the end of the run, after one check of min_t h_t  none
:func:`one_sided`       every answer, until the first failing round            log T in the index
:func:`gaussian`        every answer and a noisy index, which H adapts to      sqrt(T)
======================  ====================================================  ===================

Proofs: ``docs/proofs/gates.md``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from scipy.optimize import brute
from scipy.special import ndtri

from userdp.arrays import FloatArray
from userdp.errors import TooFewUsersError
from userdp.privacy.accounting import (
    Event,
    FailureEvent,
    GaussianEvent,
    PureEvent,
    gaussian_scale,
    gaussian_tail,
    mu_beside,
    total_failure,
)
from userdp.privacy.budget import Budget

# The index h is a small integer; its noise lives on a lattice this much finer, so that rounding is free.
INDEX_RESOLUTION = 2**10
DEFAULT_PASS_PROBABILITY = 0.999

# index H -> Delta_H, or infinity where no bound is proven
SensitivityBound: TypeAlias = Callable[[int], float]
Setting = TypeVar("Setting")


@dataclass(frozen=True)
class DeferredSetting:
    """One check at the end: release iff (min_t h_t) * resolution + noise(scale) >= threshold."""

    index: int
    scale: float
    threshold: int
    mean_mu: float

    @property
    def events(self) -> tuple[Event, ...]:
        """What the gate costs; the means cost ``mean_mu`` on top."""
        margin = self.threshold - (self.index - 1) * INDEX_RESOLUTION
        return (
            GaussianEvent("concentration gate", sensitivity=INDEX_RESOLUTION, scale=self.scale),
            FailureEvent("gate passes in error", delta=gaussian_tail(margin, self.scale)),
        )


@dataclass(frozen=True)
class OneSidedSetting:
    """Round t passes iff h_t - G_t >= threshold - G_0, with one-sided geometric G_0 and fresh G_t."""

    index: int
    threshold: int
    threshold_epsilon: float
    query_epsilon: float
    mean_mu: float

    @property
    def events(self) -> tuple[Event, ...]:
        """What the gate costs; the means cost ``mean_mu`` on top."""
        failure = math.exp(-self.threshold_epsilon * (self.threshold - (self.index - 1)))
        return (
            PureEvent("concentration gate", epsilon=self.threshold_epsilon + self.query_epsilon),
            FailureEvent("gate passes in error", delta=failure * (1 + 1e-12)),
        )


@dataclass(frozen=True)
class GaussianSetting:
    """Each round releases h_t * resolution + noise(scale); H = floor((that - margin) / resolution)."""

    scale: float
    margin: int
    rounds: int
    mean_mu: float

    @property
    def events(self) -> tuple[Event, ...]:
        """What the gate costs; the means cost ``mean_mu`` on top."""
        failure = self.rounds * gaussian_tail(self.margin + INDEX_RESOLUTION, self.scale)
        return (
            GaussianEvent("concentration gate", INDEX_RESOLUTION, self.scale, rounds=self.rounds),
            FailureEvent("gate passes in error", delta=failure),
        )

    def index(self, noisy_index: int) -> int:
        """H for a released noisy index, in lattice units."""
        return (noisy_index - self.margin) // INDEX_RESOLUTION


def deferred(
    budget: Budget,
    expected_index: int,
    sensitivity: SensitivityBound,
    *,
    pass_probability: float = DEFAULT_PASS_PROBABILITY,
    beside: tuple[Event, ...] = (),
) -> DeferredSetting:
    """Best setting of the deferred gate; ``beside`` lists what the same release spends elsewhere.

    Raises
    ------
    TooFewUsersError
        If no split leaves an index at which the mean has a proven sensitivity.
    """
    left = _Remaining(budget, beside)
    luck = -ndtri(1 - pass_probability)

    def setting(log_failure: float, log_share: float) -> DeferredSetting:
        mu = left.mu(log_failure)
        scale = gaussian_scale(INDEX_RESOLUTION, mu * math.sqrt(10**log_share))
        # Conservative by one unit each: the discrete tail, and rounding the threshold up.
        margin = max(1, math.ceil(1 - ndtri(left.delta * 10**log_failure) * scale))
        headroom = margin + math.ceil(luck * scale)
        index = expected_index + 1 - math.ceil(headroom / INDEX_RESOLUTION)
        threshold = (index - 1) * INDEX_RESOLUTION + margin
        return DeferredSetting(index, scale, threshold, mu * math.sqrt(1 - 10**log_share))

    return _best(setting, lambda s: sensitivity(s.index) / s.mean_mu, ((-5, -0.02), (-4, -0.1)))


def one_sided(
    budget: Budget,
    expected_index: int,
    sensitivity: SensitivityBound,
    *,
    rounds: int,
    pass_probability: float = DEFAULT_PASS_PROBABILITY,
    beside: tuple[Event, ...] = (),
) -> OneSidedSetting:
    """Best setting of the one-sided AboveThreshold; see :func:`deferred` for the arguments."""
    left = _Remaining(budget, beside)

    def setting(log_failure: float, log_epsilon: float) -> OneSidedSetting:
        gate_epsilon = budget.epsilon * 10**log_epsilon
        surprise = -math.log(left.delta * 10**log_failure)
        # The split that minimises surprise/eps_a + (2/eps_b) log(rounds / Pr[fail]).
        a = math.sqrt(surprise)
        b = math.sqrt(2 * math.log(rounds / (1 - pass_probability)))
        eps_a, eps_b = gate_epsilon * a / (a + b), gate_epsilon * b / (a + b)
        margin = math.ceil(surprise / eps_a * (1 + 1e-12))
        # Counts only G_t here, which is quick; G_0 can only help.
        headroom = math.ceil(2 * math.log(rounds / (1 - pass_probability)) / eps_b)
        index = expected_index + 1 - margin - headroom
        mu = left.mu(log_failure, gate_epsilon)
        return OneSidedSetting(index, index - 1 + margin, eps_a, eps_b, mu)

    best = _best(setting, lambda s: sensitivity(s.index) / s.mean_mu, ((-3, -0.05), (-2.5, -0.02)))
    margin = best.threshold - (best.index - 1)
    headroom = _one_sided_headroom(best.threshold_epsilon, best.query_epsilon, rounds, pass_probability)
    index = expected_index + 1 - margin - headroom
    return replace(best, index=index, threshold=index - 1 + margin)


def gaussian(
    budget: Budget,
    expected_index: int,
    sensitivity: SensitivityBound,
    *,
    rounds: int,
    beside: tuple[Event, ...] = (),
) -> GaussianSetting:
    """Best setting of the per-round Gaussian gate, judged at the median of its noise.

    See :func:`deferred` for the arguments; this gate adapts to the index it finds.
    """
    left = _Remaining(budget, beside)

    def setting(log_failure: float, log_share: float) -> GaussianSetting:
        mu = left.mu(log_failure)
        scale = gaussian_scale(INDEX_RESOLUTION, mu * math.sqrt(10**log_share), rounds)
        quantile = ndtri(left.delta * 10**log_failure / rounds)
        margin = max(0, math.ceil(1 - quantile * scale) - INDEX_RESOLUTION)
        return GaussianSetting(scale, margin, rounds, mu * math.sqrt(1 - 10**log_share))

    def cost(s: GaussianSetting) -> float:
        return sensitivity(s.index(expected_index * INDEX_RESOLUTION)) / s.mean_mu

    return _best(setting, cost, ((-5, -0.02), (-4, -0.1)))


class _Remaining:
    """What a budget leaves for a gate and its means beside other events."""

    def __init__(self, budget: Budget, beside: tuple[Event, ...]) -> None:
        self.delta = budget.delta - total_failure(beside)
        self._budget = budget
        self._beside = beside
        self.mu = lru_cache(maxsize=None)(self._mu)

    def _mu(self, log_failure: float, gate_epsilon: float = 0.0) -> float:
        """Return the mu left when 10**log_failure of delta and ``gate_epsilon`` go to the gate."""
        gate = PureEvent("gate", gate_epsilon), FailureEvent("gate", self.delta * 10**log_failure)
        mu = mu_beside((*self._beside, *gate), self._budget.epsilon, self._budget.delta)
        if mu == 0:
            raise _NothingLeftError
        return mu


class _NothingLeftError(Exception):
    """A split of the budget that leaves nothing for the means."""


def _one_sided_headroom(eps_a: float, eps_b: float, rounds: int, pass_probability: float) -> int:
    """Smallest B with Pr[max_t G_t <= B + G_0] >= pass_probability."""
    g0 = np.arange(math.ceil(40 / eps_a) + 1)
    mass = -math.expm1(-eps_a) * np.exp(-eps_a * g0)

    def passes(headroom: int) -> bool:
        below = -np.expm1(-eps_b / 2 * (headroom + g0 + 1))
        return bool(mass @ below**rounds >= pass_probability)

    low, high = -1, 1
    while not passes(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _best(
    setting: Callable[[float, float], Setting],
    cost: Callable[[Setting], float],
    ranges: tuple[tuple[float, float], tuple[float, float]],
) -> Setting:
    """Minimise the cost over a grid that zooms in; grids do not mind the floors in H."""

    def objective(x: FloatArray) -> float:
        try:
            return cost(setting(*x))
        except _NothingLeftError:
            return math.inf

    for _ in range(4):
        best, value, *_ = brute(objective, ranges, Ns=15, finish=None, full_output=True)
        if not math.isfinite(value):
            raise TooFewUsersError("the budget leaves no index at which the mean has a proven sensitivity")
        ranges = _zoom(ranges[0], best[0]), _zoom(ranges[1], best[1])
    return setting(*best)


def _zoom(interval: tuple[float, float], centre: float) -> tuple[float, float]:
    """Shrink an interval to a quarter around a point of it."""
    low, high = interval
    return max(low, centre - (high - low) / 8), min(high, centre + (high - low) / 8)
