r"""Practical settings from public numbers: where budget, radius, noise and rounds meet.

One private mean of users' gradients at index H has noise sigma_1 = Delta_H/mu per coordinate; T of them within the
same budget have sqrt(T) sigma_1 each, and what T rounds of averaged SGD lose is

    R^2/(2 eta T) + eta (G^2 + d T sigma_1^2)/2     (non-smooth),
    R^2/(2 eta T) + eta d T sigma_1^2/2             (beta-smooth, eta <= 1/beta),

best at eta = R/(T sigma_1 sqrt(d)) and worth R sigma_1 sqrt(d) as soon as T is so large that G^2/T (or
beta R/T) no longer matters. Rounds are free in privacy behind the deferred gate, so T is taken that large.
To this comes the sampling error R G/sqrt(n m).

The radius is where the paper's 1/sqrt(m) enters: users whose m gradients are independent and of norm at most G lie
within sqrt(2) (G/sqrt(m)) (1 + sqrt(4 log(n)/d)) of each other when their spread is the same in all directions. The
guarantee does not rest on this: data that is wider is refused by the gate.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from userdp.errors import InvalidInputError, TooFewUsersError
from userdp.means import certified
from userdp.means.concentrated import ConcentratedMean
from userdp.means.sensitivity import mean_sensitivity
from userdp.optimizers.dp_sgd import DPSGD, EVERYWHERE
from userdp.planning import rates
from userdp.privacy.budget import Budget
from userdp.problems import Domain
from userdp.problems._checks import count, nonnegative, positive

MIN_ROUNDS = 50
# T this many times the number of rounds at which optimisation and noise cost the same.
_ROUNDS_MARGIN = 4.0


@dataclass(frozen=True)
class PhasePlan:
    """The numbers of one run of DP-SGD.

    Attributes
    ----------
    n_users : int
        Users of this phase; phases share none.
    rounds, step_size, smoothing_radius : int, float, float
        Of the optimizer; a smoothing radius of 0 means that the loss is used as it is.
    radius : float
        Friend radius of the private mean.
    noise_std : float
        Of each round's mean gradient, per coordinate.
    distance : float
        Bound on the initial distance to the optimum that the step size was set for.
    excess_risk : float
        What is expected at the end of the phase.
    budget : Budget
        What its private mean is run with: the plan's, or with the smaller delta of the paper's Algorithm 3.
    """

    n_users: int
    rounds: int
    step_size: float
    smoothing_radius: float
    radius: float
    noise_std: float
    distance: float
    excess_risk: float
    budget: Budget

    def optimizer(self, domain: Domain | None = None) -> DPSGD:
        """Return DP-SGD with these numbers."""
        return DPSGD(self.rounds, self.step_size, domain if domain is not None else EVERYWHERE)


@dataclass(frozen=True)
class Plan:
    """Everything about a training that is public: it is made without reading data.

    Attributes
    ----------
    n_users, items_per_user, n_features : int
        What was declared.
    budget : Budget
        What may be spent.
    calibration : {"certified", "paper"}
        Whose constants the private mean uses.
    lipschitz, smoothness, strong_convexity, distance : float
        Declared constants of the loss and of the starting point.
    max_rounds, radius : int, float or None
        What the computer can afford; a known friend radius.
    phases : tuple of PhasePlan
        One for a convex loss; several, on disjoint users, for a strongly convex one.
    """

    n_users: int
    items_per_user: int
    n_features: int
    budget: Budget
    calibration: Literal["certified", "paper"]
    lipschitz: float
    smoothness: float
    strong_convexity: float
    distance: float
    max_rounds: int
    radius: float | None
    phases: tuple[PhasePlan, ...]

    @property
    def excess_risk(self) -> float:
        """Expected excess risk of the answer."""
        return self.phases[-1].excess_risk

    def mean(self, phase: PhasePlan) -> ConcentratedMean:
        """Return the private mean of a phase."""
        return ConcentratedMean(phase.radius, calibration=self.calibration, gate="deferred")

    def users_for(self, target: float) -> int:
        """Return how many users an expected excess risk of ``target`` needs, all else equal, within 2%.

        Examples
        --------
        >>> p = plan(n_users=1_000, items_per_user=100, n_features=50, epsilon=1.0, delta=1e-6)
        >>> p.users_for(p.excess_risk) <= 1_000 < p.users_for(p.excess_risk / 10)
        True
        """
        if not target > 0:
            raise InvalidInputError(f"the target error must be positive, got {target!r}")

        def is_enough(n: int) -> bool:
            try:
                return self._with_users(n).excess_risk <= target
            except TooFewUsersError:
                return False

        low, high = 1, 2
        while not is_enough(high):
            low, high = high, 2 * high
            if high > 10**15:
                raise InvalidInputError(
                    f"no number of users reaches an error of {target:g} within {self.max_rounds} rounds; "
                    "allow more of them (max_rounds)"
                )
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        return high

    def _with_users(self, n_users: int) -> "Plan":
        return plan(
            n_users=n_users,
            items_per_user=self.items_per_user,
            n_features=self.n_features,
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            lipschitz=self.lipschitz,
            smoothness=self.smoothness,
            strong_convexity=self.strong_convexity,
            distance=self.distance,
            max_rounds=self.max_rounds,
            radius=self.radius,
            calibration=self.calibration,
        )


def plan(
    *,
    n_users: int,
    items_per_user: int,
    n_features: int,
    epsilon: float,
    delta: float,
    lipschitz: float = 1.0,
    smoothness: float = 0.25,
    strong_convexity: float = 0.0,
    distance: float = 1.0,
    max_rounds: int = 10_000,
    radius: float | None = None,
    calibration: Literal["certified", "paper"] = "certified",
    unit: str = "user",
) -> Plan:
    """Choose rounds, radius, step and noise for a declared problem; read no data.

    Parameters
    ----------
    items_per_user : int
        A typical number of items; users with fewer are outliers to the private mean.
    lipschitz : float
        G, a bound on the norm of an item's gradient.
    smoothness : float
        beta; infinite for a non-smooth loss. The defaults are those of logistic regression on features of
        norm at most 1.
    strong_convexity : float
        mu; positive plans the phases of Algorithm 4.
    distance : float
        Distance from the starting point to the optimum: at most the domain's diameter.
    max_rounds : int
        What the computer can afford; rounds are free in privacy, and a non-smooth loss could use many.
    radius : float, optional
        How far apart users' mean gradients lie, where that is known better than by
        :func:`concentration_radius`.
    calibration : {"certified", "paper"}
        ``"paper"``: the paper's settings, rounds included, to the letter.

    Examples
    --------
    >>> p = plan(n_users=10_000, items_per_user=100, n_features=50, epsilon=1.0, delta=1e-6)
    >>> p.excess_risk < 0.01
    True
    """
    budget = Budget(epsilon, delta, unit)
    n_users, items_per_user, n_features, max_rounds = (
        count(name, value, 1, "declare a public number")
        for name, value in (
            ("n_users", n_users),
            ("items_per_user", items_per_user),
            ("n_features", n_features),
            ("max_rounds", max_rounds),
        )
    )
    lipschitz = positive("lipschitz", lipschitz, "declare a bound on the norm of an item's gradient")
    distance = positive("distance", distance, "declare the distance from the start to the optimum")
    smoothness = nonnegative("smoothness", smoothness, "use math.inf for a loss that is not smooth")
    strong_convexity = nonnegative(
        "strong_convexity", strong_convexity, "use 0 for a loss that is only convex"
    )
    if math.isinf(strong_convexity):
        raise InvalidInputError("strong_convexity must be finite; 0 for a loss that is only convex")
    if radius is not None:
        radius = positive("radius", radius, "leave it out where it is not known")
    planner = _Planner(n_users, items_per_user, n_features, budget, lipschitz, smoothness, max_rounds, radius)
    match calibration, strong_convexity > 0:
        case "certified", False:
            phases: tuple[PhasePlan, ...] = (planner.certified(n_users, distance),)
        case "certified", True:
            phases = planner.certified_phases(strong_convexity, distance)
        case "paper", False:
            setting = rates.convex(
                n_users, items_per_user, n_features, epsilon, delta, lipschitz=lipschitz, distance=distance
            )
            phases = (planner.paper(n_users, distance, setting),)
        case "paper", True:
            phases = tuple(
                planner.paper(phase.n_users, phase.distance, phase.setting)
                for phase in rates.strongly_convex(
                    n_users,
                    items_per_user,
                    n_features,
                    epsilon,
                    delta,
                    lipschitz=lipschitz,
                    strong_convexity=strong_convexity,
                )
            )
        case _:
            raise InvalidInputError(f'calibration must be "certified" or "paper", got {calibration!r}')
    return Plan(
        n_users,
        items_per_user,
        n_features,
        budget,
        calibration,
        lipschitz,
        smoothness,
        strong_convexity,
        distance,
        max_rounds,
        radius,
        phases,
    )


@dataclass(frozen=True)
class _Planner:
    """One phase at a time, from the declared numbers."""

    n_users: int
    items_per_user: int
    n_features: int
    budget: Budget
    lipschitz: float
    smoothness: float
    max_rounds: int
    radius: float | None

    def certified(self, n_users: int, distance: float) -> PhasePlan:
        """Settle radius, noise, rounds and step for the certified mean behind the deferred gate."""
        n, m, d, G, R = n_users, self.items_per_user, self.n_features, self.lipschitz, distance
        radius = self.radius if self.radius is not None else concentration_radius(n, m, d, G)
        setting = certified.deferred_setting(n, self.budget)
        sigma_1 = mean_sensitivity(setting.index, n, radius) / setting.mean_mu
        private = sigma_1 * math.sqrt(d)
        balance = min((G / private) ** 2, self.smoothness * R / private)
        T = max(min(MIN_ROUNDS, self.max_rounds), min(self.max_rounds, math.ceil(_ROUNDS_MARGIN * balance)))
        if self.smoothness * R / private < (G / private) ** 2:
            gradient_noise = T * private**2
            stable = 1 / self.smoothness if self.smoothness > 0 else math.inf
            step = min(stable, R / math.sqrt(T * gradient_noise))
        else:
            gradient_noise = G**2 + T * private**2
            step = R / math.sqrt(T * gradient_noise)
        optimisation = R**2 / (2 * step * T) + step * gradient_noise / 2
        excess = optimisation + R * G / math.sqrt(n * m)
        smoothing = 0.0 if math.isfinite(self.smoothness) else excess / (2 * G)
        return PhasePlan(n, T, step, smoothing, radius, sigma_1 * math.sqrt(T), R, excess, self.budget)

    def certified_phases(self, strong_convexity: float, distance: float) -> tuple[PhasePlan, ...]:
        """Run Algorithm 4's phases: each shrinks the distance to sqrt(2 risk/mu)."""
        phases = []
        R = min(distance, 2 * self.lipschitz / strong_convexity)
        for size in rates.phase_sizes(self.n_users, self.items_per_user):
            phase = self.certified(size, R)
            phases.append(phase)
            R = min(R, math.sqrt(2 * phase.excess_risk / strong_convexity))
        return tuple(phases)

    def paper(self, n_users: int, distance: float, setting: rates.Setting) -> PhasePlan:
        """Take the paper's numbers as they are."""
        from userdp.means.paper import noise_scale

        noise = noise_scale(setting.radius, n_users, setting.rounds, self.budget.epsilon, setting.mean_delta)
        rate = rates.convex_rate(
            n_users,
            self.items_per_user,
            self.n_features,
            self.budget.epsilon,
            lipschitz=self.lipschitz,
            distance=distance,
        )
        return PhasePlan(
            n_users,
            setting.rounds,
            setting.step_size,
            setting.smoothing_radius,
            setting.radius,
            noise,
            distance,
            rate,
            replace(self.budget, delta=setting.mean_delta),
        )


def concentration_radius(n_users: int, items_per_user: int, n_features: int, lipschitz: float = 1.0) -> float:
    """Return sqrt(2) (G/sqrt(m)) (1 + sqrt(4 log(n)/d)), at most 2 G: how far apart users' mean gradients lie.

    Examples
    --------
    >>> round(concentration_radius(1_000, 100, 10_000), 3)
    0.149
    """
    G, m = lipschitz, items_per_user
    spread = 1 + math.sqrt(4 * math.log(max(n_users, 2)) / n_features)
    return min(2 * G, math.sqrt(2) * G / math.sqrt(m) * spread)
