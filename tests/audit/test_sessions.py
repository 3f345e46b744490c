"""What a session of several rounds shows: its law, the evidence in it, and the paper's claim that it breaks."""

import warnings

import numpy as np
import pytest

from userdp.audit import MECHANISMS, exact_epsilon, switching
from userdp.audit.pairs import Pair
from userdp.audit.session_targets import one_sided, paper, session
from userdp.audit.sessions import session_law
from userdp.errors import InvalidInputError, PrivacyWarning
from userdp.means import ClippedMean, ConcentratedMean
from userdp.means.paper import users_needed
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget

BUDGET = Budget(4.0, 1e-2)
N, T = 40, 3
KINDS = {
    "deferred": (ConcentratedMean(1.0, gate="deferred"), switching(N, T, 34, 36)),
    "one-sided": (ConcentratedMean(1.0, gate="one-sided"), switching(N, T, 31, 30)),
    "paper": (ConcentratedMean(1.0, calibration="paper"), switching(N, T, 35, 35, here=-1.0, away=2.0)),
}


@pytest.fixture(autouse=True)
def _few_users_on_purpose():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_is_that_of_the_session(kind):
    """How many rounds are answered, and around what; z-scores at a false alarm rate below 1e-6."""
    estimator, pair = KINDS[kind]
    calibrated, trials = estimator.calibrate(N, 1, BUDGET, T), 1_500
    target, law = session(calibrated, BUDGET, (pair,), cost=1), session_law(calibrated, pair)
    informative = 0
    for side, tables in enumerate((pair.one, pair.other)):
        noise = SeededNoise(side)
        found = np.array([target.once(tables, noise) for _ in range(trials)])
        expected = law.answered[side]
        assert expected.sum() == pytest.approx(1)
        counts = np.bincount(found[:, 0].astype(int), minlength=T + 1)
        spread = np.sqrt(trials * expected * (1 - expected)) + 1e-9
        assert (abs(counts - trials * expected) / np.maximum(spread, 0.2)).max() < 5.5
        informative += ((expected > 0.02) & (expected < 0.98)).sum()
        for t in range(T):
            shown = found[found[:, 0] > t, 1 + t]
            gap = abs(shown.mean() - law.means[side][t, 0]) if len(shown) else 0.0
            assert gap < 5.5 * law.noise_std / np.sqrt(max(len(shown), 1))
    assert informative >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_is_a_likelihood_ratio(kind):
    """Its exponential has mean 1 on the first table, and it is larger on the second."""
    estimator, pair = KINDS[kind]
    calibrated = estimator.calibrate(N, 1, BUDGET, T)
    target, law = session(calibrated, BUDGET, (pair,), cost=1), session_law(calibrated, pair)
    evidence = []
    for side, tables in enumerate((pair.one, pair.other)):
        noise = SeededNoise(10 + side)
        evidence.append(law.evidence(np.array([target.once(tables, noise) for _ in range(1_500)])))
    ratios = np.exp(evidence[0])
    assert abs(ratios.mean() - 1) < 5.5 * ratios.std() / np.sqrt(len(ratios))
    assert evidence[1].mean() > evidence[0].mean() + 0.1


def test_one_round_is_a_session():
    calibrated = ConcentratedMean(1.0, gate="one-sided").calibrate(N, 1, BUDGET)
    pair = switching(N, 1, 0, 33)
    stacked = Pair(pair.name, pair.one[None], pair.other[None])
    assert exact_epsilon(calibrated, pair, 1e-2) == exact_epsilon(calibrated, stacked, 1e-2) > 0


@pytest.mark.parametrize("rounds", [1, 5, 20])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_no_switching_pair_costs_a_one_sided_gate_more_than_its_claim(rounds, delta):
    budget = Budget(4.0, delta)
    target = one_sided(budget, 300, rounds, cost=1)
    found = max(map(target.exact, target.pairs))
    assert 0.2 * budget.epsilon < found <= budget.epsilon


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_the_paper_s_whole_claim_is_exceeded_where_its_theorem_makes_it(epsilon):
    """Exactly, no trials: at the least number of users of the theorem, ten rounds and delta = 1e-6."""
    budget = Budget(epsilon, 1e-6)
    target = paper(budget, 10, cost=1)
    pair = max(target.pairs, key=target.exact)
    assert pair.one.shape[1] >= users_needed(10, epsilon, 1e-6)
    assert not target.certified
    assert target.exact(pair) > 1.05 * epsilon
    law = session_law(
        ConcentratedMean(1.0, calibration="paper").calibrate(pair.one.shape[1], 1, budget, 10), pair
    )
    assert max(law.law.delta(epsilon), law.law.swapped.delta(epsilon)) > 10 * budget.delta


def test_neighbours_differ_in_one_user():
    for name in ("certified mean, one-sided gate, 5 rounds", "paper's mean"):
        for pair in MECHANISMS[name](BUDGET, 100).pairs:
            assert np.array_equal(pair.one[:, 1:], pair.other[:, 1:], equal_nan=True)


def test_laws_that_are_not_known_are_refused():
    pair = switching(N, T, 30, 30)
    with pytest.raises(InvalidInputError, match="not known"):
        session_law(ClippedMean(1.0).calibrate(N, 1, BUDGET, T), pair)
    paper_mean = ConcentratedMean(1.0, calibration="paper").calibrate(N, 1, BUDGET, T)
    with pytest.raises(InvalidInputError, match="coins decide"):
        session_law(paper_mean, switching(N, T, 22, 22))
