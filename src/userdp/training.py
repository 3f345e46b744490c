"""Where data, plan and randomness meet: ``userdp.minimize``."""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray, IntArray
from userdp.data.parts import AnyUsers, capped, taken
from userdp.data.stored import StoredUsers
from userdp.data.users import Users
from userdp.engines.groups import n_groups, users_of
from userdp.engines.interface import Engine, LocalEngine, Oracle, checked_engine, storage_of
from userdp.engines.local import Objective, n_parameters
from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means.interface import MeanEstimator
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.optimizers import DPSGD, Checkpoint, ItemDPSGD, Localization, LocalizedSGD, Phase, PhasedERM
from userdp.optimizers.dp_sgd import EVERYWHERE, Solution
from userdp.optimizers.rounds import Progress
from userdp.planning import PhasePlan, Plan
from userdp.privacy.budget import Budget
from userdp.problems import GLM, Domain, Loss, Regularized, SampledGLM, SampledSmoothing, SmoothedGLM
from userdp.problems._checks import count


def minimize(
    loss: Objective,
    users: Users | StoredUsers,
    *,
    domain: Domain | None = None,
    plan: Plan | None = None,
    optimizer: DPSGD | PhasedERM | ItemDPSGD | LocalizedSGD | None = None,
    mean: MeanEstimator | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: str | None = None,
    start: ArrayLike | None = None,
    min_items: int = 1,
    max_items: int | None = None,
    group_size: int = 1,
    random_state: int | np.random.Generator | None = None,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Solution:
    """Minimise the average over users of their average loss, protecting each whole user.

    Either a ``plan`` says everything, or ``optimizer``, ``mean``, ``epsilon`` and ``delta`` do.

    **Guarantee**: (epsilon, delta)-DP for replacing all items of one user, that of the private mean
    (``docs/proofs/dp_sgd.md``, ``localization.md``); not certified where the mean uses the paper's constants.

    Parameters
    ----------
    loss : Loss
        Convex; a JAX function becomes one through :class:`userdp.problems.JaxLoss`.
    users : Users or StoredUsers
        ``Users.from_rows(X, groups, y)``; an item is ``(x, y)``, or ``x`` where there are no targets. Users that do
        not fit in memory come from ``userdp.data.store_users``.
    domain : Domain
        Where the answer may lie; the whole space by default.
    plan : Plan
        From :func:`userdp.plan`; its users and features must be those of the data. With a ``group_size`` its users
        are the groups: n_users/group_size of them, with group_size times as many items.
    optimizer : DPSGD, PhasedERM, ItemDPSGD or LocalizedSGD
        Rounds, step size and domain, chosen by hand. The last two protect rows, and users by group privacy: they
        take ``max_items`` instead of a ``mean``.
    mean : MeanEstimator
        Any private mean with its radius, for example ``ConcentratedMean(radius, gate="deferred")``.
    epsilon, delta, unit : float, float, str
        The budget of numbers chosen by hand, and what one user is, in words for the statement ("patient").
    start : array
        Where to start; the origin by default. Public.
    min_items, max_items : int
        Users with fewer items are null; of more items a random subset is used.
    group_size : int
        Average fixed random groups of so many users first, for more than about a million users. The mean's radius
        is then that of the groups' averages, about sqrt(group_size) smaller; the noise is sqrt(group_size) larger.
    random_state : int, optional
        A seed makes the result repeatable, for experiments only, and the statement says so.
    engine : Engine
        Who computes the users' gradients: ``userdp.engines.LocalEngine(device="gpu")``, ``RayEngine(address)``; this
        machine by default. The answer is the same.
    checkpoint : path
        A folder from which an interrupted run on the same data with the same arguments goes on. It is as sensitive
        as the data, and gone when the run is over.

    Raises
    ------
    NotConcentratedError
        If users' gradients were not within the radius in some round; the budget is spent, nothing is released.

    Examples
    --------
    >>> import userdp
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(0.3, 1.0, size=(20_000, 2))
    >>> users = Users.from_rows(z, groups=np.repeat(np.arange(2_000), 10))
    >>> solution = minimize(
    ...     userdp.problems.SquaredDistance(), users, optimizer=DPSGD(rounds=20, step_size=0.3),
    ...     mean=userdp.means.ConcentratedMean(radius=3.0, gate="deferred"),
    ...     epsilon=1.0, delta=1e-6, random_state=0,
    ... )
    >>> bool(abs(solution.point - 0.3).max() < 0.2)
    True
    """
    noise = noise_source(random_state)
    if not isinstance(users, Users | StoredUsers):
        raise InvalidInputError(
            f"users must be Users.from_rows(X, groups, y) or StoredUsers, got {type(users).__name__}"
        )
    fewest = count("min_items", min_items, 1, "1 takes every user")
    count("group_size", group_size, 1, "1 lets every user stand alone")
    if max_items is not None and count("max_items", max_items, 1, "leave it out for all rows") < fewest:
        raise InvalidInputError(
            f"max_items = {max_items} is below min_items = {min_items}: every user would be null"
        )
    first = None if start is None else _as_point(start)
    _check_kind(
        "loss", loss, Loss | SampledSmoothing | SampledGLM, "a userdp.problems loss, for example JaxLoss(f)"
    )
    _check_kind("plan", plan, Plan | None, "made by userdp.plan")
    optimizers = DPSGD | PhasedERM | ItemDPSGD | LocalizedSGD
    _check_kind("optimizer", optimizer, optimizers | None, "one of userdp.optimizers")
    _check_kind("mean", mean, MeanEstimator | None, "one of userdp.means")
    by_rows = isinstance(optimizer, ItemDPSGD | LocalizedSGD)
    if plan is not None:
        if any(argument is not None for argument in (optimizer, mean, epsilon, delta, unit)):
            raise InvalidInputError(
                "give either a plan, or optimizer, mean, epsilon, delta and unit, not both"
            )
    elif optimizer is None or epsilon is None or delta is None or (mean is None and not by_rows):
        raise InvalidInputError("minimize needs a plan, or all of optimizer, mean, epsilon and delta")
    elif domain is not None:
        raise InvalidInputError("the domain belongs to the optimizer: DPSGD(rounds, step_size, domain=...)")
    elif by_rows:
        if mean is not None or max_items is None or min_items != 1:
            raise InvalidInputError(
                f"{type(optimizer).__name__} takes rows: give max_items, and neither mean nor min_items"
            )
        if engine is not None and engine != LocalEngine():
            raise InvalidInputError(f"{type(optimizer).__name__} runs on this machine: leave engine out")
        if not isinstance(users, Users):
            raise InvalidInputError(
                f"{type(optimizer).__name__} needs users in memory; read them with load_users"
            )
    if group_size != 1 and plan is None and not isinstance(optimizer, DPSGD):
        raise InvalidInputError(
            "groups go with a plan or with DPSGD and its mean; other optimizers are for single users"
        )
    n_groups(users.n_users, group_size)
    chosen_engine = checked_engine(LocalEngine() if engine is None else engine, users)

    def run(kept: Checkpoint | None, noise: NoiseSource) -> Solution:
        chosen: AnyUsers = users
        if max_items is not None:
            chosen = capped(users, max_items, noise.generator())
        run = _Run(loss, chosen, min_items, noise, chosen_engine, kept)
        if plan is not None:
            return run.planned(plan, domain, first, group_size)
        assert epsilon is not None
        assert delta is not None
        budget = Budget(epsilon, delta, unit or "user")
        budget.warn_if_weak_for(users.n_users)
        if isinstance(optimizer, ItemDPSGD | LocalizedSGD):
            assert max_items is not None
            return run.by_rows(optimizer, max_items, budget, first)
        assert mean is not None
        if isinstance(optimizer, PhasedERM):
            return run.in_phases(optimizer, mean, budget, first)
        assert optimizer is not None
        return run.chosen(optimizer, mean, budget, first, group_size)

    if checkpoint is None:
        return run(None, noise)
    public = (
        loss,
        domain,
        plan,
        optimizer,
        mean,
        epsilon,
        delta,
        unit,
        start,
        min_items,
        max_items,
        group_size,
        storage_of(engine),
    )
    with Checkpoint(checkpoint) as kept:
        try:
            solution = run(kept, kept.noise(noise, users, *public, random_state))
        except NotConcentratedError:
            kept.finish()
            raise
        kept.finish()
    return solution


@dataclass(frozen=True)
class _Run:
    """One training: data, randomness, who computes, and where an interrupted run finds its way back."""

    loss: Objective
    users: AnyUsers
    min_items: int
    noise: NoiseSource
    engine: Engine
    kept: Checkpoint | None

    def progress(self) -> Progress | None:
        return None if self.kept is None else self.kept.progress()

    def chosen(
        self,
        optimizer: DPSGD,
        mean: MeanEstimator,
        budget: Budget,
        start: FloatArray | None,
        group_size: int,
    ) -> Solution:
        """Run DP-SGD with numbers chosen by hand."""
        n_users = self.users.n_users
        dimension = n_parameters(self.loss, self.users.n_features, _dimension(start))
        calibrated = mean.calibrate(n_groups(n_users, group_size), dimension, budget, optimizer.rounds)
        oracle = self.engine.oracle(
            self.loss,
            self.in_groups(group_size),
            dimension=dimension,
            min_items=self.min_items,
            group_size=group_size,
        )
        return self.stated(optimizer.run(oracle, calibrated, self.noise, start, self.progress()), group_size)

    def in_groups(self, group_size: int) -> AnyUsers:
        """Put users in the secret random order that makes their groups; stored users are in one already."""
        if group_size == 1 or not isinstance(self.users, Users):
            return self.users
        return self.users.take(self.noise.permutation(self.users.n_users))

    def stated(self, solution: Solution, group_size: int) -> Solution:
        """Say that users stood for themselves in groups, if they did."""
        if group_size == 1:
            return solution
        groups = f"users averaged in fixed random groups of {group_size}, each user in one of them"
        privacy = solution.privacy
        assumptions = (*privacy.assumptions, groups)
        return replace(
            solution, privacy=replace(privacy, n_users=self.users.n_users, assumptions=assumptions)
        )

    def by_rows(
        self, optimizer: ItemDPSGD | LocalizedSGD, max_items: int, budget: Budget, start: FloatArray | None
    ) -> Solution:
        """Run a method that protects rows, and users by group privacy."""
        assert isinstance(self.users, Users)
        d = _dimension(start)
        return optimizer.run(
            self.loss,
            self.users,
            max_items=max_items,
            budget=budget,
            noise=self.noise,
            start=start,
            dimension=d,
        )

    def in_phases(
        self, optimizer: PhasedERM, mean: MeanEstimator, budget: Budget, start: FloatArray | None
    ) -> Solution:
        """Run phased ERM with numbers chosen by hand."""
        n_users = self.users.n_users
        dimension = n_parameters(self.loss, self.users.n_features, _dimension(start))
        localization = optimizer.localization(mean, n_users, dimension, budget)

        def oracle_of(i: int, chosen: IntArray) -> Oracle:
            mine = taken(self.users, chosen)
            return self.engine.oracle(self.loss, mine, dimension=dimension, min_items=self.min_items)

        return localization.run(oracle_of, n_users, self.noise, start, self.progress)

    def planned(
        self, plan: Plan, domain: Domain | None, start: FloatArray | None, group_size: int
    ) -> Solution:
        """Run DP-SGD or, for several phases, localization, with the plan's numbers."""
        n_users = n_groups(self.users.n_users, group_size)
        if n_users != plan.n_users:
            what = "" if group_size == 1 else f" groups of {group_size}: plan for so many users"
            raise InvalidInputError(f"the plan is for {plan.n_users} users, the data has {n_users}{what}")
        dimension = n_parameters(self.loss, self.users.n_features, _dimension(start))
        if dimension != plan.n_features:
            raise InvalidInputError(
                f"the plan is for {plan.n_features} coordinates, the model has {dimension}; "
                "plan with n_features = number of coordinates of theta"
            )
        plan.budget.warn_if_weak_for(self.users.n_users)
        domain = domain if domain is not None else EVERYWHERE
        phases = tuple(_phase(phase, plan, domain) for phase in plan.phases)

        users = self.in_groups(group_size)

        def oracle_of(i: int, users: AnyUsers) -> Oracle:
            radius = plan.phases[i].smoothing_radius
            smooth = smoothed(self.loss, radius, dimension, sampled=plan.calibration == "paper")
            return self.engine.oracle(
                smooth, users, dimension=dimension, min_items=self.min_items, group_size=group_size
            )

        def oracle_of_some(i: int, chosen: IntArray) -> Oracle:
            return oracle_of(i, taken(users, users_of(chosen, group_size, users.n_users)))

        if len(phases) == 1 and phases[0].n_users == n_users:
            oracle, phase = oracle_of(0, users), phases[0]
            solution = phase.optimizer.run(oracle, phase.mean, self.noise, start, self.progress())
        else:
            localization = Localization(phases)
            solution = localization.run(oracle_of_some, n_users, self.noise, start, self.progress)
        solution = self.stated(solution, group_size)
        # The paper runs its mean with a smaller delta than it promises.
        return replace(solution, privacy=replace(solution.privacy, delta=plan.budget.delta))


def _phase(phase: PhasePlan, plan: Plan, domain: Domain) -> Phase:
    """Calibrate one phase's mean; refuses here, before any noise is drawn."""
    mean = plan.mean(phase).calibrate(phase.n_users, plan.n_features, phase.budget, phase.rounds)
    return Phase(phase.n_users, phase.optimizer(domain), mean)


def smoothed(loss: Objective, radius: float, dimension: int, *, sampled: bool) -> Objective:
    """Smooth a loss over a ball: by sampling as in the paper, or in closed form where it has one."""
    match loss:
        case GLM() if radius > 0 and not sampled:
            return SmoothedGLM(loss, radius, dimension)
        case Regularized(loss=GLM() as inner) if radius > 0 and not sampled:
            return Regularized(SmoothedGLM(inner, radius, dimension), loss.strength)
        case Loss() if radius > 0:
            return SampledSmoothing(loss, radius)
    return loss


def _check_kind(name: str, value: object, kind: Any, meant: str) -> None:
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} must be {meant}, got {type(value).__name__}")


def _as_point(start: ArrayLike) -> FloatArray:
    try:
        point = np.asarray(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError("start must be a vector of numbers") from None
    if point.ndim != 1:
        raise InvalidInputError(f"start must be a vector, got shape {point.shape}")
    return point


def _dimension(start: FloatArray | None) -> int | None:
    return None if start is None else len(start)
