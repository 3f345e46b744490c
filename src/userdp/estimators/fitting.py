r"""What happens inside ``fit``: private scales, a private start, then clipped descent; one composition.

1. **Start**: how often each class occurs, where the intercept starts; in a regression unit and middle of the targets.
2. **Scale**: sign and size of each number, from votes for powers of four. Numbers that cannot be measured at this
   budget are dropped.
3. **Location**: where each number of one sign lies and how wide it is, from ever closer looks at its rows; then a mean
   around there; and 4. its **second moment**.
5. **Rates**: how often each boolean is true.
6. **Norms** of the users' gradients at the start, and 7. a **pilot**: their mean. They tell where gradients are
   clipped, and how strongly numbers and booleans speak, hence how strong their ridges are.
8. **Descent**: full-batch gradient descent on the users' clipped mean gradients, for whatever budget the stages left.
   Its coefficients are made longer or shorter by what they tell of their strength.
9. **Calibration**: how long the coefficients ought to be, and where the intercept, by the slopes of the loss there.

Every stage's cost is an event; the statement is that of their composition (``docs/proofs/stages.md``).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray
from userdp.data.parts import AnyUsers, capped, changed
from userdp.engines.interface import Engine, LocalEngine, checked_engine
from userdp.estimators.calibration import Adjustable
from userdp.estimators.descending import Found, Problem, Walk, coordinates_of, descend
from userdp.estimators.per_user import per_user
from userdp.estimators.rows import Columns, Scaling, null_by_value, targets_as_rows, user_rates
from userdp.estimators.stages import private_base_rate
from userdp.estimators.standardizing import standardize
from userdp.estimators.targets import Target, private_target, target_by_looks
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.optimizers.rounds import Progress
from userdp.planning.descent import LOG_ODDS_SIGNAL, TARGET_MIDDLE, TARGET_SIGNAL
from userdp.planning.shares import Shares, shares
from userdp.privacy.accounting import Event
from userdp.privacy.budget import Budget
from userdp.privacy.statement import PrivacyStatement
from userdp.problems import Logistic, Loss, Multinomial

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
    scale : array of shape (n_features,)
        One unit of each feature, about a standard deviation; infinite for those that were left out.
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
    scale: FloatArray
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
    checked_engine(options.engine, users)
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
        target, events = _find_target(changed(users, targets_as_rows), split, options, noise)
        start_rates, curvature = None, task.curvature
    else:
        rates = per_user(user_rates, users, task.n_classes)
        start_rates, event = private_base_rate(rates, split.base_rate, noise)
        target, events = Target(0.0, 1.0), (event,)
        curvature = task.curvature * float(1 - (start_rates**2).sum())
    columns, more = standardize(users, split, booleans, noise, around_zero=not options.fit_intercept)
    events = (*events, *more)
    scaled = changed(users, Scaling(columns, target if task.n_classes == 0 else None, options.fit_intercept))
    start = _start(task, scaled.n_features, start_rates, options.fit_intercept)
    problem = Problem(
        options.engine.oracle(task.loss, scaled, dimension=len(start)),
        start,
        *coordinates_of(columns, booleans, options.fit_intercept, _n_parameters(task, 1)),
        curvature,
        task.signal,
        Adjustable(
            np.tile(np.arange(scaled.n_features) == users.n_features, _n_parameters(task, 1)),
            is_classification=task.n_classes > 0,
            log_odds=float(start[-1]) if isinstance(task.loss, Logistic) else 0.0,
        ),
        TARGET_MIDDLE if task.n_classes == 0 and options.fit_intercept else 0.0,
    )
    walk = Walk(options.rounds, options.ridge, options.coefficient_bound, options.progress)
    found = descend(problem, split, budget, events, walk, noise)
    return _on_original_scale(found, (-1, scaled.n_features), columns, target, options, split)


def _find_target(
    targets: AnyUsers, split: Shares, options: Options, noise: NoiseSource
) -> tuple[Target, tuple[Event, ...]]:
    later = split.target_location, split.target_mean
    if split.target_look:
        return target_by_looks(targets, split.target_look, *later, noise, not options.fit_intercept)
    return private_target(targets, split.target_scale, *later, noise)


def _on_original_scale(
    found: Found,
    shape: tuple[int, int],
    columns: Columns,
    target: Target,
    options: Options,
    split: Shares,
) -> FittedLinear:
    d, weights, noise_std = len(columns.scale), found.point.reshape(shape), found.noise_std.reshape(shape)
    coefficients = weights[:, :d] / columns.scale * target.unit
    intercepts = (weights[:, d] if options.fit_intercept else np.zeros(len(weights))) * target.unit
    intercepts = intercepts + target.middle - coefficients @ columns.centre
    return FittedLinear(
        coefficients,
        intercepts,
        *columns.limits,
        columns.scale,
        noise_std[:, :d] / columns.scale * target.unit,
        found.privacy,
        split,
        found.rounds,
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
