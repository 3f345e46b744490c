"""Sessions under attack: gates that speak in every round, the paper's Algorithm 2 as a whole and its threshold."""

import math
from dataclasses import replace

import numpy as np

from userdp.arrays import FloatArray
from userdp.audit.exact import exact_epsilon
from userdp.audit.pairs import Pair, library, switching
from userdp.audit.sessions import session_law
from userdp.audit.target import Target, at_least
from userdp.errors import NotConcentratedError
from userdp.means import ConcentratedMean
from userdp.means.certified import CertifiedMean
from userdp.means.interface import CalibratedMean
from userdp.means.paper import users_needed
from userdp.mechanisms import NoiseSource, SeededNoise
from userdp.privacy.budget import Budget
from userdp.privacy.calibration import OneSidedSetting
from userdp.privacy.statement import PrivacyStatement

# How far beside the threshold the users of a pair are put, for the exact epsilon to choose among.
_NEAR = range(-3, 4)


def session(calibrated: CalibratedMean, budget: Budget, pairs: tuple[Pair, ...], *, cost: int) -> Target:
    """Attack all that a session shows, by the likelihood ratio of what was seen."""

    def once(tables: FloatArray, noise: NoiseSource) -> FloatArray:
        tables = tables if tables.ndim == 3 else tables[None]
        answers, answered = np.zeros((len(tables), tables.shape[2])), 0
        asked = calibrated.start(noise)
        try:
            for vectors in tables:
                answer = asked.answer(vectors)
                if asked.halted:  # the paper's way to halt
                    break
                answers[answered], answered = answer, answered + 1
        except NotConcentratedError:
            pass  # the answers before are out
        try:
            asked.finish()
        except NotConcentratedError:  # a deferred gate: nothing leaves
            answers[:], answered = 0.0, 0
        return np.append(float(answered), answers)

    return Target(
        budget.epsilon,
        budget.delta,
        pairs,
        once,
        lambda pair: exact_epsilon(calibrated, pair, budget.delta),
        cost,
        lambda pair, outputs: session_law(calibrated, pair).evidence(outputs),
    )


def deferred(budget: Budget, n_users: int, rounds: int, *, cost: int) -> Target:
    """Attack the deferred gate: the same query in every round."""
    calibrated = ConcentratedMean(1.0, gate="deferred").calibrate(n_users, 1, budget, rounds)
    return session(calibrated, budget, tuple(_repeated(pair, rounds) for pair in library(n_users)), cost=cost)


def one_sided(budget: Budget, n_users: int, rounds: int, *, cost: int) -> Target:
    """Attack the one-sided gate: one user on either side of its threshold."""
    calibrated = ConcentratedMean(1.0, gate="one-sided").calibrate(n_users, 1, budget, rounds)
    assert isinstance(calibrated, CertifiedMean)
    setting = calibrated.setting
    assert isinstance(setting, OneSidedSetting)
    pairs = [
        switching(n_users, rounds, min(setting.threshold + k, n_users - 1), setting.threshold + last)
        for k in (_NEAR if rounds > 1 else _NEAR[:1])
        for last in _NEAR
        if setting.threshold + last < n_users
    ]
    return session(
        calibrated, budget, (*pairs, *(_repeated(pair, rounds) for pair in library(n_users))), cost=cost
    )


def paper(budget: Budget, rounds: int, *, cost: int) -> Target:
    """Attack all of the paper's Algorithm 2, at the least number of users for which its theorem claims its guarantee.

    One user stands at -tau from the others, who count it as a friend at radius tau, or at 2 tau, where they do not and
    still keep it: the gate hears of it in every round, and every answer moves by 3 tau/k.
    """
    n = math.ceil(users_needed(rounds, budget.epsilon, budget.delta))
    calibrated = ConcentratedMean(1.0, calibration="paper").calibrate(n, 1, budget, rounds)
    k = math.isqrt(4 * n * n // 5)  # so many together make a score of 4n/5
    pairs = tuple(
        switching(n, rounds, k + near, k + last, here=-1.0, away=2.0)
        for near in (-1, 0, 1)
        for last in (-1, 0, 1)
        if max(near, last) + k < n
    )
    return replace(session(calibrated, budget, pairs, cost=cost), certified=False)


def paper_gate(budget: Budget) -> Target:
    """Attack the round at which the paper's Algorithm 2 halts, against the epsilon/2 that it sets aside for this.

    Its AboveThreshold is given noise for queries of sensitivity 1, and a score that one user moves by 2 (n - 1)/n.
    """
    n, rounds = 12, 5
    estimator = ConcentratedMean(1.0, calibration="paper")
    calibrated = estimator.calibrate(n, 1, at_least(budget, 4.0), rounds)

    def once(tables: FloatArray, noise: NoiseSource) -> FloatArray:
        session = calibrated.start(noise)
        for t, vectors in enumerate(tables):
            session.answer(vectors)
            if session.halted:
                return np.array([float(t)])
        return np.array([float(rounds)])

    share = budget_share(calibrated.start(SeededNoise(0)).finish(), "AboveThreshold")
    return Target(share, 0.0, (switching(n, rounds, 10, 11, here=0.0),), once, cost=4, certified=False)


def budget_share(statement: PrivacyStatement, name: str) -> float:
    """Return the epsilon that a statement says one of its parts costs."""
    return sum(spend.epsilon for spend in statement.spent if spend.name == name)


def _repeated(pair: Pair, rounds: int) -> Pair:
    """Ask for the same tables in every round."""
    if rounds == 1:
        return pair
    return replace(pair, one=np.stack([pair.one] * rounds), other=np.stack([pair.other] * rounds))
