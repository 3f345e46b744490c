"""Everything of the library that adds noise as an attacker meets it: public entry points, worst-case pairs."""

import math
from collections.abc import Callable

import numpy as np

import userdp
from userdp.arrays import FloatArray
from userdp.audit import session_targets
from userdp.audit.exact import exact_epsilon
from userdp.audit.pairs import Pair, across, library, replaced
from userdp.audit.target import Target, at_least
from userdp.data import Users
from userdp.means import (
    AdaptiveClippedMean,
    BassilySunMean,
    ClippedMean,
    ConcentratedMean,
    DeletionPTR,
    FriendlyCoreMean,
    LevyMean,
)
from userdp.means.interface import MeanEstimator
from userdp.mechanisms import (
    AboveThreshold,
    NoiseSource,
    OneSidedAboveThreshold,
    private_quantile,
)
from userdp.optimizers import DPSGD
from userdp.privacy.budget import Budget
from userdp.problems import SquaredDistance

N_USERS = 300


def _mean(
    estimator: MeanEstimator, budget: Budget, pairs: tuple[Pair, ...], *, exact: bool = False, cost: int = 1
) -> Target:
    """Attack one answer of a mean."""
    calibrated = estimator.calibrate(len(pairs[0].one), pairs[0].one.shape[1], budget)

    def once(vectors: FloatArray, noise: NoiseSource) -> FloatArray:
        session = calibrated.start(noise)
        answer = session.answer(vectors)
        session.finish()
        return np.append(answer, session.noise_std)  # a gate may say by its noise what it saw

    found = (lambda pair: exact_epsilon(calibrated, pair, budget.delta)) if exact else None
    return Target(budget.epsilon, budget.delta, pairs, once, found, cost)


def _rounds(estimator: MeanEstimator, budget: Budget, rounds: int, pair: Pair, cost: int) -> Target:
    """Attack all answers of a mean that is asked the same query several times."""
    calibrated = estimator.calibrate(len(pair.one), pair.one.shape[1], budget, rounds)

    def once(vectors: FloatArray, noise: NoiseSource) -> FloatArray:
        session = calibrated.start(noise)
        answers = np.concatenate([session.answer(vectors) for _ in range(rounds)])
        session.finish()
        return answers

    return Target(budget.epsilon, budget.delta, (pair,), once, cost=cost)


def _thresholds(
    epsilon: float, start: Callable[[NoiseSource], AboveThreshold | OneSidedAboveThreshold]
) -> Target:
    """Attack the round at which AboveThreshold halts: queries that all move down, but for the last, which moves up."""

    def once(queries: FloatArray, noise: NoiseSource) -> FloatArray:
        gate = start(noise)
        for t, query in enumerate(queries):
            if not gate.is_above(int(query)):
                return np.array([float(t)])
        return np.array([float(len(queries))])

    def queries(name: str, passing: int, last: int, rounds: int) -> Pair:
        one = np.array([passing] * (rounds - 1) + [last], dtype=np.float64)
        return Pair(name, one, one + np.array([-1.0] * (rounds - 1) + [1.0]))

    pairs = (
        queries("one query", 0, 0, 1),
        queries("ten queries", 2, -4, 10),
        queries("30 queries", 6, -6, 30),
    )
    return Target(epsilon, 0.0, pairs, once)


def _quantile(budget: Budget) -> Target:
    """Attack a private quantile whose many empty bins make one value count twice."""
    candidates = np.array([1.0, 2.0, 4.0, *np.linspace(5.0, 8.0, 60)])
    pairs = tuple(
        Pair(
            f"{below} values below",
            np.array([old, *[1.5] * below, *[3.0] * (8 - below)]),
            np.array([new, *[1.5] * below, *[3.0] * (8 - below)]),
        )
        for below, old, new in ((0, 0.5, 9.0), (2, 1.5, 6.0), (4, 1.5, 6.0))
    )
    epsilon = budget.epsilon

    def once(values: FloatArray, noise: NoiseSource) -> FloatArray:
        return np.array([private_quantile(values, 0.75, epsilon, noise, candidates)])

    return Target(epsilon, 0.0, pairs, once)


def _located_mean(budget: Budget, widths: tuple[float, ...] = (1.0,)) -> Target:
    """Attack ``userdp.mean`` where it locates the users and then clips; several columns have units found first."""
    n = math.ceil(1_000 * len(widths) / budget.epsilon)
    bulk = np.random.default_rng(0).normal(100.0, 1.0, (n, len(widths)))
    low, high = bulk.copy(), bulk.copy()
    low[0], high[0] = 92.0, 108.0
    pairs = (
        replaced("from one tail to the other", low * widths, high[0] * widths),
        replaced("from a tail to null", high * widths, np.nan),
    )
    ids = np.arange(n)

    def once(rows: FloatArray, noise: NoiseSource) -> FloatArray:
        release = userdp.mean(
            rows,
            groups=ids,
            epsilon=budget.epsilon,
            delta=budget.delta,
            random_state=noise,  # type: ignore[arg-type]
        )
        return np.append(release.value, np.log2(release.units))

    return Target(budget.epsilon, budget.delta, pairs, once, cost=80)


def _training(mean: MeanEstimator, budget: Budget, n_users: int) -> Target:
    """Attack ``userdp.minimize``: a few rounds of descent on a squared distance."""
    pair, ids = across(n_users), np.arange(n_users)
    loss, optimizer = SquaredDistance(), DPSGD(rounds=3, step_size=0.5)

    def once(rows: FloatArray, noise: NoiseSource) -> FloatArray:
        solution = userdp.minimize(
            loss,
            Users.from_rows(rows, ids),
            optimizer=optimizer,
            mean=mean,
            epsilon=budget.epsilon,
            delta=budget.delta,
            random_state=noise,  # type: ignore[arg-type]
        )
        return solution.point

    return Target(budget.epsilon, budget.delta, (pair,), once, cost=40)


def _regression(budget: Budget, n_users: int) -> Target:
    """Attack ``userdp.LinearRegression``: one user pulls the slope up or down."""
    rows = np.random.default_rng(0).normal(size=(n_users, 2)) * [1.0, 0.3]
    rows[0] = [4.0, 4.0]
    pair = replaced("pulls the slope up or down", rows, np.array([4.0, -4.0]))
    return _estimator(userdp.LinearRegression, pair, budget)


def _few_targets(budget: Budget) -> Target:
    """Attack ``userdp.LinearRegression`` of so few users that it looks at their targets: one has the other sign."""
    rows = np.column_stack([np.zeros(5), np.full(5, 10.0)])
    return _estimator(
        userdp.LinearRegression, replaced("is of the other sign", rows, np.array([0.0, -10.0])), budget
    )


def _rare_class(budget: Budget, n_users: int) -> Target:
    """Attack ``userdp.LogisticRegression``: one user is of a rare class, which moves the intercept, or is not."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=n_users), rng.random(n_users) < 0.08])
    rows[0] = [4.0, 1.0]
    return _estimator(
        userdp.LogisticRegression, replaced("is of the rare class or not", rows, np.array([4.0, 0.0])), budget
    )


def _estimator(
    Estimator: type[userdp.LinearRegression] | type[userdp.LogisticRegression], pair: Pair, budget: Budget
) -> Target:
    """Attack a fit; a table has one feature, then the target."""
    ids = np.arange(len(pair.one))

    def once(table: FloatArray, noise: NoiseSource) -> FloatArray:
        model = Estimator(
            budget.epsilon,
            budget.delta,
            rounds=4,
            random_state=noise,  # type: ignore[arg-type]
        )
        model.fit(table[:, :1], table[:, 1], groups=ids)
        return np.append(model.coef_, model.intercept_)

    return Target(budget.epsilon, budget.delta, (pair,), once, cost=80)


def _deletions(budget: Budget) -> Target:
    """Attack the search over subsets, which takes few users and a large epsilon."""
    return _mean(DeletionPTR(1.0), at_least(budget, 8.0), library(14)[:5], cost=20)


MECHANISMS: dict[str, Callable[[Budget, int], Target]] = {
    "clipped mean": lambda budget, n: _mean(ClippedMean(1.0), budget, library(n), exact=True),
    "certified mean, Gaussian gate": lambda budget, n: _mean(
        ConcentratedMean(1.0), budget, library(n), exact=True, cost=2
    ),
    "certified mean, deferred gate": lambda budget, n: session_targets.deferred(budget, n, 1, cost=2),
    "certified mean, one-sided gate": lambda budget, n: session_targets.one_sided(budget, n, 1, cost=4),
    "certified mean, deferred gate, 5 rounds": lambda budget, n: session_targets.deferred(
        budget, n, 5, cost=4
    ),
    "certified mean, one-sided gate, 5 rounds": lambda budget, n: session_targets.one_sided(
        budget, n, 5, cost=4
    ),
    "adaptive clipped mean, 5 rounds": lambda budget, n: _rounds(
        AdaptiveClippedMean(1.0, learning_rate=0.01), budget, 5, across(n), cost=4
    ),
    "Levy et al.": lambda budget, n: _mean(LevyMean(1.0, bound=8.0), budget, library(n)[:5], cost=4),
    "Bassily and Sun": lambda budget, n: _mean(BassilySunMean(1.0), budget, library(n)[:5], cost=8),
    "friendly core": lambda budget, n: _mean(FriendlyCoreMean(1.0), budget, library(n), exact=True, cost=2),
    "deletions": lambda budget, n: _deletions(budget),
    "AboveThreshold": lambda budget, n: _thresholds(
        budget.epsilon, lambda noise: AboveThreshold(budget.epsilon, 0, noise)
    ),
    "one-sided AboveThreshold": lambda budget, n: _thresholds(
        budget.epsilon, lambda noise: OneSidedAboveThreshold(budget.epsilon / 2, budget.epsilon / 2, 0, noise)
    ),
    "private quantile": lambda budget, n: _quantile(budget),
    "paper's mean": lambda budget, n: session_targets.paper(budget, 5, cost=4),
    "paper's mean, delta 1e-6": lambda budget, n: session_targets.paper(
        Budget(max(budget.epsilon, 4.0), 1e-6), 10, cost=10
    ),
    "paper's AboveThreshold": lambda budget, n: session_targets.paper_gate(budget),
    "userdp.mean": lambda budget, n: _located_mean(at_least(budget, 4.0)),
    "userdp.mean, units": lambda budget, n: _located_mean(at_least(budget, 4.0), widths=(1.0, 1000.0)),
    "minimize, clipped mean": lambda budget, n: _training(ClippedMean(1.0), at_least(budget, 4.0), n),
    "minimize, certified mean": lambda budget, n: _training(
        ConcentratedMean(1.0, gate="deferred"), at_least(budget, 4.0), n
    ),
    "LinearRegression": lambda budget, n: _regression(at_least(budget, 8.0), n),
    "LinearRegression, few users": lambda budget, n: _few_targets(at_least(budget, 8.0)),
    "LogisticRegression": lambda budget, n: _rare_class(at_least(budget, 8.0), n),
}
