"""Where data, plan and randomness meet: ``userdp.minimize``."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from userdp.arrays import FloatArray, IntArray
from userdp.data.users import Users
from userdp.engines.local import GradientOracle, Objective, local_oracle, n_parameters
from userdp.errors import InvalidInputError
from userdp.means.interface import MeanEstimator
from userdp.mechanisms.noise import NoiseSource, noise_source
from userdp.optimizers import DPSGD, ItemDPSGD, Localization, LocalizedSGD, Phase, PhasedERM, Solution
from userdp.optimizers.dp_sgd import EVERYWHERE
from userdp.planning import PhasePlan, Plan
from userdp.privacy.budget import Budget
from userdp.problems import GLM, Domain, Loss, Regularized, SampledSmoothing, SmoothedGLM


def minimize(
    loss: Objective,
    users: Users,
    *,
    domain: Domain | None = None,
    plan: Plan | None = None,
    optimizer: DPSGD | PhasedERM | ItemDPSGD | LocalizedSGD | None = None,
    mean: MeanEstimator | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    start: ArrayLike | None = None,
    min_items: int = 1,
    max_items: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Solution:
    """Minimise the average over users of their average loss, protecting each whole user.

    Either a ``plan`` says everything, or ``optimizer``, ``mean``, ``epsilon`` and ``delta`` do.

    **Guarantee**: (epsilon, delta)-DP for replacing all items of one user, that of the private mean
    (``docs/proofs/dp_sgd.md``, ``localization.md``); not certified where the mean uses the paper's constants.

    Parameters
    ----------
    loss : Loss
        Convex; a JAX function becomes one through :class:`userdp.problems.JaxLoss`.
    users : Users
        ``Users.from_rows(X, groups, y)``; an item is ``(x, y)``, or ``x`` where there are no targets.
    domain : Domain
        Where the answer may lie; the whole space by default.
    plan : Plan
        From :func:`userdp.plan`; its users and features must be those of the data.
    optimizer : DPSGD, PhasedERM, ItemDPSGD or LocalizedSGD
        Rounds, step size and domain, chosen by hand. The last two protect rows, and users by group privacy: they
        take ``max_items`` instead of a ``mean``.
    mean : MeanEstimator
        Any private mean with its radius, for example ``ConcentratedMean(radius, gate="deferred")``.
    start : array
        Where to start; the origin by default. Public.
    min_items, max_items : int
        Users with fewer items are null; of more items a random subset is used.
    random_state : int, optional
        A seed makes the result repeatable, for experiments only, and the statement says so.

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
    if not isinstance(users, Users):
        raise InvalidInputError(f"users must be Users.from_rows(X, groups, y), got {type(users).__name__}")
    if max_items is not None:
        if max_items < min_items:
            raise InvalidInputError(
                f"max_items = {max_items} is below min_items = {min_items}: every user would be null"
            )
        users = users.capped(max_items, noise.generator())
    first = None if start is None else _as_point(start)
    if plan is not None:
        if any(argument is not None for argument in (optimizer, mean, epsilon, delta)):
            raise InvalidInputError("give either a plan, or optimizer, mean, epsilon and delta, not both")
        return _run_plan(loss, users, plan, domain, first, min_items, noise)
    if optimizer is None or epsilon is None or delta is None:
        raise InvalidInputError("minimize needs a plan, or all of optimizer, mean, epsilon and delta")
    if domain is not None:
        raise InvalidInputError("the domain belongs to the optimizer: DPSGD(rounds, step_size, domain=...)")
    budget = Budget(epsilon, delta)
    budget.warn_if_weak_for(users.n_users)
    if isinstance(optimizer, ItemDPSGD | LocalizedSGD):
        if mean is not None or max_items is None or min_items != 1:
            raise InvalidInputError(
                f"{type(optimizer).__name__} takes rows: give max_items, and neither mean nor min_items"
            )
        return optimizer.run(
            loss,
            users,
            max_items=max_items,
            budget=budget,
            noise=noise,
            start=first,
            dimension=_dimension(first),
        )
    if mean is None:
        raise InvalidInputError("minimize needs a plan, or all of optimizer, mean, epsilon and delta")
    if isinstance(optimizer, PhasedERM):
        dimension = _dimension(first) or n_parameters(loss, users.n_features)
        localization = optimizer.localization(mean, users.n_users, dimension, budget)

        def oracle_of(i: int, chosen: IntArray) -> GradientOracle:
            return local_oracle(loss, users.take(chosen), dimension=dimension, min_items=min_items)

        return localization.run(oracle_of, users.n_users, noise, first)
    oracle = local_oracle(loss, users, dimension=_dimension(first), min_items=min_items)
    calibrated = mean.calibrate(users.n_users, oracle.dimension, budget, optimizer.rounds)
    return optimizer.run(oracle, calibrated, noise, first)


def _run_plan(
    loss: Objective,
    users: Users,
    plan: Plan,
    domain: Domain | None,
    start: FloatArray | None,
    min_items: int,
    noise: NoiseSource,
) -> Solution:
    """Run DP-SGD or, for several phases, localization, with the plan's numbers."""
    if users.n_users != plan.n_users:
        raise InvalidInputError(f"the plan is for {plan.n_users} users, the data has {users.n_users}")
    dimension = _dimension(start) or n_parameters(loss, users.n_features)
    if dimension != plan.n_features:
        raise InvalidInputError(
            f"the plan is for {plan.n_features} coordinates, the model has {dimension}; "
            "plan with n_features = number of coordinates of theta"
        )
    plan.budget.warn_if_weak_for(users.n_users)
    domain = domain if domain is not None else EVERYWHERE
    phases = tuple(_phase(phase, plan, domain) for phase in plan.phases)

    def oracle_of(i: int, chosen: IntArray) -> GradientOracle:
        radius = plan.phases[i].smoothing_radius
        smooth = smoothed(loss, radius, dimension, sampled=plan.calibration == "paper")
        return local_oracle(smooth, users.take(chosen), dimension=dimension, min_items=min_items)

    if len(phases) == 1 and phases[0].n_users == users.n_users:
        oracle = oracle_of(0, np.arange(users.n_users))
        solution = phases[0].optimizer.run(oracle, phases[0].mean, noise, start)
    else:
        solution = Localization(phases).run(oracle_of, users.n_users, noise, start)
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


def _as_point(start: ArrayLike) -> FloatArray:
    try:
        return np.asarray(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError("start must be a vector of numbers") from None


def _dimension(start: FloatArray | None) -> int | None:
    return None if start is None else len(start)
