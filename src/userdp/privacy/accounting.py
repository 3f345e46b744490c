r"""What a composition of mechanisms costs together.

A release is a list of plain *events*; :func:`delta_of` and :func:`epsilon_of` analyse the list. The
composition may be adaptive and interactive (concurrent): Gaussian events compose by adding mu^2, pure ones by
adding epsilon, and the two kinds together by the domination of a pure interactive mechanism by randomized
response (Vadhan & Zhang 2023; ``docs/proofs/composition.md``):

    delta(eps) = p delta_Phi(eps - eps_1; mu) + (1 - p) delta_Phi(eps + eps_1; mu) + sum of failures,
    p = e^eps_1 / (1 + e^eps_1).

Noise is an integer discrete Gaussian, which is not exactly mu-GDP. With a smoothing width s,
sigma^2 >= 2 s^2 and eta = 4 exp(-2 pi^2 s^2) per noisy coordinate (``docs/proofs/discrete_gaussian.md``),

    delta(eps) <= e^(eta k) delta_continuous(eps - 2 eta k),
    mu^2 = sum of rounds * sensitivity^2 / (scale^2 - s^2),

for k noisy coordinates in all.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from userdp.errors import InvalidInputError
from userdp.privacy.gdp import delta_from_mu, largest_below, smallest_epsilon

SMOOTHING_WIDTH = 2.0
SLACK_PER_COORDINATE = 4 * math.exp(-2 * math.pi**2 * SMOOTHING_WIDTH**2)


@dataclass(frozen=True)
class GaussianEvent:
    """``rounds`` adaptive answers of ``coordinates`` integers, each with discrete Gaussian noise.

    ``sensitivity`` (L2, after rounding to the lattice) and ``scale`` are in lattice units.
    """

    name: str
    sensitivity: float
    scale: float
    coordinates: int = 1
    rounds: int = 1

    def __post_init__(self) -> None:
        if not self.scale**2 >= 2 * SMOOTHING_WIDTH**2:
            raise InvalidInputError(
                f"{self.name}: a discrete Gaussian of scale {self.scale:g} lattice units is too coarse for "
                f"this accounting; use a finer lattice (scale at least {math.sqrt(2) * SMOOTHING_WIDTH:.3g})"
            )

    @property
    def mu(self) -> float:
        """GDP parameter of the continuous mechanism that the lattice one is compared with, rounded up."""
        squared = self.rounds * self.sensitivity**2 / (self.scale**2 - SMOOTHING_WIDTH**2)
        return math.sqrt(squared) * (1 + 1e-12)

    @property
    def noisy_coordinates(self) -> int:
        """How many integers carry noise."""
        return self.rounds * self.coordinates


@dataclass(frozen=True)
class PureEvent:
    """A (possibly interactive) mechanism that is (epsilon, 0)-DP."""

    name: str
    epsilon: float


@dataclass(frozen=True)
class FailureEvent:
    """A bad event of probability at most ``delta``, outside which the other events' claims hold."""

    name: str
    delta: float


Event: TypeAlias = GaussianEvent | PureEvent | FailureEvent


def gaussian_scale(sensitivity: float, mu: float, rounds: int = 1) -> float:
    """Discrete Gaussian scale, in lattice units, that makes ``rounds`` answers cost ``mu`` together.

    Rounded up; the inverse of :attr:`GaussianEvent.mu`.
    """
    scale = math.sqrt(rounds * (sensitivity / mu) ** 2 + SMOOTHING_WIDTH**2) * (1 + 4e-12)
    return max(scale, math.sqrt(2) * SMOOTHING_WIDTH * (1 + 1e-12))


def gaussian_tail(units: float, scale: float) -> float:
    """Bound on Pr[X >= units] for a discrete Gaussian X and units >= 1: Phi(-(units - 1)/scale)."""
    if units < 1:
        raise InvalidInputError(f"the tail bound holds from one lattice unit on, got {units}")
    return math.erfc((units - 1) / (scale * math.sqrt(2))) / 2 * (1 + 1e-12)


def composed_delta(epsilon: float, mu: float, pure_epsilon: float = 0.0) -> float:
    """Delta of an adaptive composition of mu-GDP with (pure_epsilon, 0)-DP parts, at ``epsilon``.

    Examples
    --------
    >>> composed_delta(1.0, mu=0.2, pure_epsilon=0.0) == delta_from_mu(1.0, mu=0.2)
    True
    """
    p = 1 / (1 + math.exp(-pure_epsilon))
    return p * delta_from_mu(epsilon - pure_epsilon, mu) + (1 - p) * delta_from_mu(epsilon + pure_epsilon, mu)


def mu_beside(events: Iterable[Event], epsilon: float, delta: float) -> float:
    """Largest mu that fits in (epsilon, delta) beside ``events``, rounded down; 0 where nothing is left."""
    events = tuple(events)
    pure, delta = total_epsilon(events), delta - total_failure(events)
    if delta <= 0 or pure >= epsilon:
        return 0.0
    whole = largest_below(lambda mu: composed_delta(epsilon, mu, pure), delta)
    return math.sqrt(max(whole**2 - total_mu(events) ** 2, 0.0))


def total_epsilon(events: Iterable[Event]) -> float:
    """Sum of the pure events' epsilons."""
    return sum(event.epsilon for event in events if isinstance(event, PureEvent))


def total_failure(events: Iterable[Event]) -> float:
    """Sum of the failure probabilities."""
    return sum(event.delta for event in events if isinstance(event, FailureEvent))


def total_mu(events: Iterable[Event]) -> float:
    """Root of the summed squares of the Gaussian events' mu."""
    return math.sqrt(sum(event.mu**2 for event in events if isinstance(event, GaussianEvent)))


def delta_of(events: Iterable[Event], epsilon: float) -> float:
    """Delta at ``epsilon`` of the adaptive composition of all events."""
    events = tuple(events)
    coordinates = sum(event.noisy_coordinates for event in events if isinstance(event, GaussianEvent))
    slack = SLACK_PER_COORDINATE * coordinates
    continuous = composed_delta(epsilon - 2 * slack, total_mu(events), total_epsilon(events))
    return math.exp(slack) * continuous + total_failure(events)


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """Smallest epsilon at ``delta`` of the adaptive composition of all events, rounded up."""
    events = tuple(events)
    return smallest_epsilon(lambda epsilon: delta_of(events, epsilon), delta)
