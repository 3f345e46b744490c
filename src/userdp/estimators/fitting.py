r"""What happens inside ``fit``: private scales, a private start, then clipped descent; one composition.

1. **Start**: how often each class occurs, where the intercept starts; in a regression unit and middle of the targets.
2. **Scale**: the magnitude of each feature, from users' votes for powers of four. Features that cannot be
   measured at this budget are dropped; those of boolean type are 0 or 1, and share one vote on how many are true.
3. **Location**: where each number lies, by votes too, then a mean around there; and 4. its **second moment**.
5. **Clip radius**: from noisy counts of the norms of the users' gradients at the start.
6. **Descent**: full-batch gradient descent on the users' clipped mean gradients, with a ridge towards the start that
   follows the noise, for whatever budget the stages left.

Every stage's cost is an event; the statement is that of their composition (``docs/proofs/stages.md``).
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray
from userdp.data.parts import AnyUsers, capped, changed
from userdp.engines.interface import Engine, LocalEngine, Oracle
from userdp.estimators.per_user import per_user
from userdp.estimators.rows import (
    BOUND,
    Columns,
    Scaling,
    booleans_true,
    columns_of,
    mean_squares,
    means_in_units,
    null_by_value,
    targets_as_rows,
    user_rates,
)
from userdp.estimators.stages import (
    Target,
    private_base_rate,
    private_centre,
    private_clip,
    private_feature_scale,
    private_second_moment,
    private_target,
)
from userdp.means.clipped import ClippedMean
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.dp_sgd import DPSGD, EVERYWHERE
from userdp.optimizers.rounds import Progress
from userdp.planning.descent import AVERAGED_SHARE, LOG_ODDS_SIGNAL, TARGET_SIGNAL, clip_ratio, descent
from userdp.planning.shares import Shares, shares
from userdp.privacy.accounting import Event, GaussianEvent
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement
from userdp.problems import L2Ball, Loss, Multinomial

# What one unit of a boolean feature is, if nobody knows how many are true: the spread of one in seven.
BOOLEAN_UNIT = 0.35
HERE = LocalEngine()


@dataclass(frozen=True)
class Task:
    """What is fitted: the loss on scaled features, its typical curvature, and how targets are treated.

    Attributes
    ----------
    loss : Loss
        Of the linear predictor, or multinomial.
    curvature : float
        Typical second derivative along the predictor; for classification a factor of p(1 - p).
    n_classes : int
        0 for regression; unit and middle of the targets are then found first.
    """

    loss: Loss
    curvature: float
    n_classes: int = 0

    @property
    def signal(self) -> float:
        """Squared norm of the coefficients to expect."""
        return LOG_ODDS_SIGNAL if self.n_classes else TARGET_SIGNAL


@dataclass(frozen=True)
class Options:
    """Public choices of the caller; ``booleans`` tells which features are 0 or 1 by their type, none by default."""

    fit_intercept: bool = True
    min_items: int = 1
    max_items: int | None = None
    rounds: int | None = None
    ridge: float = 0.0
    coefficient_bound: float | None = None
    booleans: tuple[bool, ...] = ()
    engine: Engine = HERE
    progress: Progress | None = None


@dataclass(frozen=True)
class FittedLinear:
    """A linear model on the original scale, of features clipped to [low, high]; all of it released.

    Attributes
    ----------
    coefficients : array of shape (k, n_features)
        One row, or one per class.
    intercepts : array of shape (k,)
    low, high : array of shape (n_features,)
        Where features are clipped before the linear predictor.
    noise_std : array of shape (k, n_features)
        Standard deviation of the descent's noise on each coefficient, to first order.
    privacy : PrivacyStatement
    plan : Shares
        How the budget was split.
    """

    coefficients: FloatArray
    intercepts: FloatArray
    low: FloatArray
    high: FloatArray
    noise_std: FloatArray
    privacy: PrivacyStatement
    plan: Shares
    rounds: int


def fit(users: AnyUsers, task: Task, budget: Budget, options: Options, noise: NoiseSource) -> FittedLinear:
    """Fit a linear model; everything that leaves is private, and what can be refused is refused before noise.

    No floating-point warning leaves: it would tell of one user's values.
    """
    booleans = np.zeros(users.n_features, dtype=bool)
    booleans[: len(options.booleans)] = options.booleans
    split = shares(
        users.n_users,
        users.n_features,
        budget,
        is_regression=task.n_classes == 0,
        n_booleans=int(booleans.sum()),
        has_centre=options.fit_intercept,
    )
    Lattice.fine_enough(1.0, users.n_users, _n_parameters(task, users.n_features + 1))
    with np.errstate(all="ignore"):
        return _fit(users, task, budget, options, split, booleans, noise)


def _fit(
    users: AnyUsers,
    task: Task,
    budget: Budget,
    options: Options,
    split: Shares,
    booleans: BoolArray,
    noise: NoiseSource,
) -> FittedLinear:
    if options.max_items is not None:
        users = capped(users, options.max_items, noise.generator())
    users = changed(users, partial(null_by_value, min_items=options.min_items))
    events: tuple[Event, ...]
    if task.n_classes == 0:
        target, events = private_target(
            changed(users, targets_as_rows),
            split.target_scale,
            split.target_location,
            split.target_mean,
            noise,
        )
        start_rates, curvature = None, task.curvature
    else:
        rates = per_user(user_rates, users, task.n_classes)
        start_rates, event = private_base_rate(rates, split.base_rate, noise)
        target, events = Target(0.0, 1.0), (event,)
        curvature = task.curvature * float(1 - (start_rates**2).sum())
    columns, more = _standardize(users, split, booleans, noise, around_zero=not options.fit_intercept)
    events = (*events, *more)
    scaled = changed(users, Scaling(columns, target if task.n_classes == 0 else None, options.fit_intercept))
    start = _start(task, scaled.n_features, start_rates, options.fit_intercept)
    oracle = options.engine.oracle(task.loss, scaled, dimension=len(start))
    theta, noise_std, statement, rounds = _descend(
        oracle, start, split, curvature, task.signal, budget, events, options, noise
    )
    return _on_original_scale(
        theta.reshape(-1, scaled.n_features), noise_std, columns, target, options, statement, split, rounds
    )


def _descend(
    oracle: Oracle,
    start: FloatArray,
    split: Shares,
    curvature: float,
    signal: float,
    budget: Budget,
    events: tuple[Event, ...],
    options: Options,
    noise: NoiseSource,
) -> tuple[FloatArray, float, PrivacyStatement, int]:
    """Choose radius, time and ridge from the noise they face; run clipped descent."""
    n, k = oracle.n_users, oracle.dimension
    norms = oracle.norms(start)
    ratio = clip_ratio(split.effective_users, k)
    clip, event = private_clip(norms, k, ratio, split.radius, noise)
    events = (*events, event)

    single = ClippedMean(clip.radius).calibrate(n, k, budget, rounds=1, beside=events)
    chosen = descent(
        single.event.scale * single.lattice.step / n / clip.kept,
        k,
        curvature=curvature,
        signal=signal,
        kept=clip.kept,
        ridge=options.ridge,
        rounds=options.rounds,
    )
    domain = L2Ball(options.coefficient_bound) if options.coefficient_bound else EVERYWHERE
    mean = ClippedMean(clip.radius).calibrate(n, k, budget, rounds=chosen.rounds, beside=events)
    optimizer = DPSGD(chosen.rounds, chosen.step, domain, averaged_share=AVERAGED_SHARE)
    ridged = replace(oracle, ridge=chosen.ridge * clip.kept, ridge_centre=start)
    solution = optimizer.run(ridged, mean, noise, start, options.progress)
    return solution.point, chosen.noise_std, solution.privacy, chosen.rounds


def _standardize(
    users: AnyUsers, split: Shares, booleans: BoolArray, noise: NoiseSource, around_zero: bool = False
) -> tuple[Columns, tuple[Event, ...]]:
    """Find magnitude, centre and second moment of every number privately, and one unit for all booleans."""
    d, is_number = users.n_features, ~booleans
    numbers = changed(users, partial(columns_of, chosen=is_number))
    scale, centre = np.where(booleans, BOOLEAN_UNIT, np.inf), np.zeros(d)
    if not split.scale:
        return Columns(centre, scale), ()
    units, true, event = private_feature_scale(
        numbers, per_user(booleans_true, users, booleans), around_zero, split.scale, noise
    )
    events: tuple[GaussianEvent, ...] = (event,)
    if true is not None:
        rate = min(true / booleans.sum(), 0.5)
        scale[booleans] = _boolean_unit(rate, int(booleans.sum()), split.effective_users / math.sqrt(d))
        centre[booleans] = 0.0 if around_zero else rate
    unit, place = np.where(units.kept, units.magnitude, np.inf), np.zeros(numbers.n_features)
    if split.location:
        located, more = private_centre(
            per_user(means_in_units, numbers, unit),
            split.location,
            split.centre,
            split.location_levels,
            noise,
        )
        unit, events = np.where(located.found, unit, np.inf), (*events, *more)
        place = np.where(located.found, located.place, 0.0)
    spread = np.ones(numbers.n_features)
    if split.second_moment:
        squares = per_user(mean_squares, numbers, unit, place)
        found, event = private_second_moment(squares, split.second_moment, noise)
        spread, events = np.sqrt(found), (*events, event)
    scale[is_number] = unit * spread
    centre[is_number] = np.where(np.isfinite(unit), place * units.magnitude, 0.0)
    return Columns(centre, scale), events


def _boolean_unit(rate: float, n_booleans: int, users_per_root: float) -> float:
    """Take the standard deviation of the average boolean, times up to 3 where users are few and booleans many.

    One of many columns says less than a number does, so it gets less of the noise's budget until users are plenty.
    """
    many = math.sqrt(math.sqrt(n_booleans))
    caution = max(1.2, min(2 * math.sqrt(20 / users_per_root), many, 3.0))
    return caution * math.sqrt(max(rate * (1 - rate), 1e-4))


def _on_original_scale(
    weights: FloatArray,
    noise_std: float,
    columns: Columns,
    target: Target,
    options: Options,
    statement: PrivacyStatement,
    split: Shares,
    rounds: int,
) -> FittedLinear:
    d = len(columns.scale)
    coefficients = weights[:, :d] / columns.scale * target.unit
    intercepts = (weights[:, d] if options.fit_intercept else np.zeros(len(weights))) * target.unit
    intercepts = intercepts + target.middle - coefficients @ columns.centre
    reach = np.where(np.isfinite(columns.scale), BOUND * columns.scale, np.inf)
    return FittedLinear(
        coefficients,
        intercepts,
        columns.centre - reach,
        columns.centre + reach,
        np.broadcast_to(noise_std / columns.scale * target.unit, coefficients.shape),
        statement,
        split,
        rounds,
    )


def _start(task: Task, n_columns: int, rates: FloatArray | None, fit_intercept: bool) -> FloatArray:
    """Start at the base rate: the intercepts that predict it."""
    start = np.zeros((_n_parameters(task, 1), n_columns))
    if rates is not None and fit_intercept:
        logits = np.log(rates)
        start[:, -1] = logits - logits.mean() if len(start) > 1 else logits[1] - logits[0]
    return start.ravel()


def _n_parameters(task: Task, n_columns: int) -> int:
    return n_columns * (task.n_classes if isinstance(task.loss, Multinomial) else 1)
