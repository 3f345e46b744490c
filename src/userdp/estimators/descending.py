"""The descent of a fit: where gradients are clipped, how strong the ridges are, and how long it goes on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from userdp.arrays import BoolArray, FloatArray
from userdp.engines.interface import Oracle
from userdp.estimators.calibration import Adjustable, calibrate
from userdp.estimators.gradients import private_gradient, private_norm, slopes_event
from userdp.estimators.rows import Columns
from userdp.means.clipped import ClippedMean
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.dp_sgd import DPSGD, EVERYWHERE
from userdp.optimizers.rounds import Progress
from userdp.planning.calibration import TIMES_ASKED, calibration_share
from userdp.planning.descent import (
    AVERAGED_SHARE,
    Descent,
    Group,
    clip_ratio,
    descent,
    expected_groups,
    lengthening,
    pilot_share,
    seen,
    share_kept,
)
from userdp.planning.shares import Shares
from userdp.privacy.accounting import Event, GaussianEvent, mu_beside
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement
from userdp.problems import L2Ball


@dataclass(frozen=True)
class Problem:
    """What is descended on.

    Attributes
    ----------
    oracle : Oracle
        The users' gradients, of scaled features.
    start : array of shape (k,)
        Where the descent begins.
    parts : array of bool of shape (kinds, k)
        Which coordinates are of one kind.
    importance : array of shape (k,)
        How much may be expected of each coordinate, over what may be expected of a typical one of its kind.
    shares : array of shape (kinds,)
        Which share of the signal is expected of each kind.
    curvature, signal : float
        Typical curvature along the predictor, and squared norm of the coefficients to expect.
    start_variance : float
        How far from its answer the last coordinate, an intercept, starts in any case; 0 if that is like the others.
    adjustable : Adjustable
        What is calibrated at the end.
    """

    oracle: Oracle
    start: FloatArray
    parts: BoolArray
    importance: FloatArray
    shares: FloatArray
    curvature: float
    signal: float
    adjustable: Adjustable
    start_variance: float = 0.0


@dataclass(frozen=True)
class Walk:
    """Public choices of the caller: rounds, an additional ridge, a bound, and where progress is kept."""

    rounds: int | None
    ridge: float
    coefficient_bound: float | None
    progress: Progress | None


@dataclass(frozen=True)
class Found:
    """Where a descent led, the noise of each coordinate, and what everything cost."""

    point: FloatArray
    noise_std: FloatArray
    privacy: PrivacyStatement
    rounds: int


def coordinates_of(
    columns: Columns, booleans: BoolArray, has_ones: bool, n_rows: int
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Return masks of the coordinates of numbers (and the intercept) and of booleans, all importances, and shares.

    Dropped columns belong to neither, and there is no mask of a kind of which nothing is left. As much is expected of
    all numbers as of all booleans, and of what is left of a kind the less, the more was dropped.
    """
    ones = np.full(int(has_ones), True)
    is_kept = np.append(np.isfinite(columns.scale), ones)
    kinds = np.array([np.append(~booleans, ones), np.append(booleans, ~ones)])
    kinds = kinds[kinds.any(axis=1)]
    importance = np.append(columns.importance, ones)
    shares = (kinds & is_kept) @ importance / (kinds @ importance) / len(kinds)
    left = shares > 0
    return np.tile((kinds & is_kept)[left], n_rows), np.tile(importance, n_rows), shares[left]


def descend(
    problem: Problem,
    split: Shares,
    budget: Budget,
    events: tuple[Event, ...],
    walk: Walk,
    noise: NoiseSource,
) -> Found:
    """Look at norms and at a pilot gradient; choose radius, time and ridges; descend; lengthen; calibrate."""
    oracle, parts, h = problem.oracle, problem.parts, problem.curvature
    n, k = oracle.n_users, oracle.dimension
    if not len(parts):  # every column was dropped, and there is no intercept
        statement = PrivacyStatement.certify(budget, events, n_users=n, seeded=noise.seeded)
        return Found(problem.start, np.zeros(k), statement, 0)
    n_kept = int(parts.sum())
    norm, event = private_norm(oracle, problem.start, n_kept, split.radius, noise)
    events = (*events, event)
    importances = [problem.importance[part] for part in parts]
    n_coefficients = sum(float(one.sum()) for one in importances)
    ratio = clip_ratio(split.effective_users, n_coefficients, problem.adjustable.log_odds)
    radius, kept = ratio * norm, share_kept(ratio)
    share = calibration_share(split.effective_users, problem.adjustable.count)
    calibration_mu = mu_beside(events, budget.epsilon, budget.delta) * math.sqrt(share / TIMES_ASKED)
    if calibration_mu:
        each = slopes_event(n, calibration_mu, problem.adjustable.count)
        events = (*events, *[each] * TIMES_ASKED)
    least = np.append(np.zeros(k - 1), problem.start_variance)
    expected = expected_groups(importances, problem.signal * problem.shares)
    groups = tuple(replace(group, least=least[part]) for group, part in zip(expected, parts, strict=True))
    left = mu_beside(events, budget.epsilon, budget.delta)
    pilot = _pilot(problem, groups, radius, kept, left, noise)
    events = (*events, pilot.event)

    left = mu_beside(events, budget.epsilon, budget.delta)
    chosen = descent(
        pilot.groups,
        2 * radius / (n * left * kept),
        signal=problem.signal,
        curvature=h,
        kept=kept,
        ridge=walk.ridge,
        rounds=walk.rounds,
        pilot=(pilot.event.mu / left) ** 2,
    )
    steps = spread(chosen.steps, parts)
    mean = ClippedMean(radius).calibrate(n, k, budget, rounds=chosen.rounds, beside=events)
    optimizer = DPSGD(
        chosen.rounds,
        steps,
        L2Ball(walk.coefficient_bound) if walk.coefficient_bound else EVERYWHERE,
        averaged_share=AVERAGED_SHARE,
    )
    ridged = replace(oracle, ridge=kept * spread(chosen.ridges, parts), ridge_centre=problem.start)
    # The pilot is as good as some rounds, all at the start.
    first = problem.start - chosen.head_start * steps * pilot.gradient
    solution = optimizer.run(ridged, mean, noise, first, walk.progress)
    longer = _lengthening(problem, pilot.groups, chosen, solution.point)
    point, length = calibrate(
        problem.adjustable,
        oracle,
        problem.start,
        problem.start + longer * (solution.point - problem.start),
        pilot.gradient / kept,
        effective_users=split.effective_users,
        ratio=ratio,
        typical=norm / math.sqrt(n_kept),
        curvature=h,
        mu=calibration_mu,
        noise=noise,
    )
    if walk.coefficient_bound:
        point *= min(1.0, walk.coefficient_bound / max(float(np.linalg.norm(point)), 1e-100))
    noise_std = abs(length) * longer * spread(chosen.noise_std, parts)
    return Found(point, noise_std, solution.privacy, chosen.rounds)


@dataclass(frozen=True)
class _Pilot:
    """What one mean gradient at the start tells: itself, and how strong coefficients are."""

    gradient: FloatArray
    groups: tuple[Group, ...]
    event: GaussianEvent


def _pilot(
    problem: Problem, groups: tuple[Group, ...], radius: float, kept: float, left: float, noise: NoiseSource
) -> _Pilot:
    """Release one mean gradient at the start; learn from it how strong the coefficients of each kind are."""
    oracle, h = problem.oracle, problem.curvature
    mu = left * math.sqrt(pilot_share(groups, 2 * radius / (oracle.n_users * left * kept), h))
    found = private_gradient(oracle, problem.start, radius, mu, noise)
    learned = tuple(
        seen(group, -found.value[part] / (kept * h), found.noise_std / (kept * h))
        for group, part in zip(groups, problem.parts, strict=True)
    )
    return _Pilot(found.value, learned, found.event)


def _lengthening(problem: Problem, groups: Sequence[Group], chosen: Descent, point: FloatArray) -> FloatArray:
    """By how much to multiply each coordinate's way; intercepts are left to calibration."""
    way = point - problem.start
    longer = np.ones(len(way))
    for group, part, gone, noise_std in zip(
        groups, problem.parts, chosen.gone, chosen.noise_std, strict=True
    ):
        is_slope = ~problem.adjustable.intercepts[part]
        slopes = replace(group, importance=group.importance[is_slope])
        found = lengthening(slopes, gone[is_slope], way[part][is_slope], noise_std[is_slope])
        longer[part & ~problem.adjustable.intercepts] = found
    return longer


def spread(values: Sequence[FloatArray], parts: BoolArray) -> FloatArray:
    """Return one number for each coordinate, that of its part; 0 where there is none."""
    each = np.zeros(parts.shape[1])
    for value, part in zip(values, parts, strict=True):
        each[part] = value
    return each
