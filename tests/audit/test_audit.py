"""The audit sees what there is to see, and stays below every certified claim."""

import inspect
import json

import numpy as np
import pytest

from benchmarks.measure import RESULTS
from userdp import means
from userdp.audit import (
    MECHANISMS,
    Audit,
    Target,
    attack,
    audit,
    exact_epsilon,
    library,
    mechanisms,
    outputs,
    search,
)
from userdp.audit.pairs import across
from userdp.errors import InvalidInputError
from userdp.means import ClippedMean, ConcentratedMean, FriendlyCoreMean, LevyMean
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget

BUDGET = Budget(4.0, 1e-2)
KNOWN = {
    "clipped": ClippedMean(1.0),
    "Gaussian gate": ConcentratedMean(1.0),
    "deferred gate": ConcentratedMean(1.0, gate="deferred"),
    "one-sided gate": ConcentratedMean(1.0, gate="one-sided"),
    "friendly core": FriendlyCoreMean(1.0),
}
SLOW = (
    "userdp.mean",
    "userdp.mean, units",
    "minimize, clipped mean",
    "minimize, certified mean",
    "LinearRegression",
    "LinearRegression, few users",
    "LogisticRegression",
)


@pytest.mark.parametrize("name", KNOWN)
def test_no_pair_costs_more_than_the_claim_also_after_a_search(name):
    n = 60
    calibrated = KNOWN[name].calibrate(n, 1, BUDGET)
    exact = {pair.name: exact_epsilon(calibrated, pair, BUDGET.delta) for pair in library(n)}
    worst = max(library(n), key=lambda pair: exact[pair.name])
    steps = 20 if name == "friendly core" else 150
    _, found = search(
        lambda pair: exact_epsilon(calibrated, pair, BUDGET.delta), worst, np.random.default_rng(0), steps
    )
    assert max(exact.values()) <= found <= BUDGET.epsilon


def test_an_exact_epsilon_sees_most_of_the_claim():
    """So that noise cut by a half, or a gate for free, would go over it."""
    n = 300
    gaussian = ConcentratedMean(1.0).calibrate(n, 1, BUDGET)
    assert exact_epsilon(gaussian, across(n), BUDGET.delta) > 0.8 * BUDGET.epsilon
    clipped = ClippedMean(1.0).calibrate(n, 1, BUDGET)
    assert exact_epsilon(clipped, across(n), BUDGET.delta) == pytest.approx(BUDGET.epsilon, rel=1e-3)


@pytest.mark.parametrize("name", KNOWN)
def test_the_exact_law_is_that_of_the_session(name):
    """Refusals and answers, as often and as far apart as the law says; z-scores at a false alarm rate of 1e-6."""
    n, trials = 60, 3_000
    calibrated = KNOWN[name].calibrate(n, 1, BUDGET)
    pair = next(pair for pair in library(n) if pair.name == "from the edge to far away")
    law = mechanisms_law(calibrated, pair)

    def once(vectors, noise):
        session = calibrated.start(noise)
        answer = session.answer(vectors)
        session.finish()
        return np.array([answer[0], session.noise_std])

    shifts = []
    for side, (x, refusal) in enumerate(zip((pair.one, pair.other), law.refusals, strict=True)):
        found = outputs(once, x, trials, SeededNoise(side))
        refused = np.isnan(found[:, 0]).mean()
        assert abs(refused - refusal) < 5 * np.sqrt(max(refusal * (1 - refusal), 1e-6) / trials) + 1e-9
        kept = found[~np.isnan(found[:, 0])]
        shifts.append((kept[:, 0] / kept[:, 1]).mean())
    expected = (law.one * law.shifts).sum() / law.one.sum()
    assert abs(abs(shifts[1] - shifts[0]) - expected) < 0.25


def mechanisms_law(calibrated, pair):
    from userdp.audit.exact import law_of

    return law_of(calibrated, pair)


def test_a_law_that_is_not_known_is_refused():
    with pytest.raises(InvalidInputError, match="not known"):
        exact_epsilon(LevyMean(1.0, bound=8.0).calibrate(100, 1, BUDGET), across(100), 1e-2)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in SLOW])
def test_a_short_attack_on_everything(name):
    found = audit(name, Budget(1.0, 1e-2), trials=200)
    assert found.holds or not found.certified
    assert found.trials >= 2


@pytest.mark.parametrize("cut", [0.5, 0.25])
def test_an_attack_notices_noise_that_is_too_small(cut):
    """The clipped mean of a ball of radius ``cut``, claimed for users from the whole unit ball and left unclipped."""
    honest = MECHANISMS["clipped mean"](BUDGET, 100)
    noise_std = ClippedMean(1.0).calibrate(100, 1, BUDGET).start(SeededNoise(0)).noise_std * cut
    broken = Target(
        honest.epsilon,
        honest.delta,
        honest.pairs[:1],
        lambda x, noise: x.mean(axis=0) + noise.discrete_gaussian(1e6, 1) / 1e6 * noise_std,
    )
    assert attack("broken", broken, broken.pairs[0], 6_000, seed=0).proven > broken.epsilon
    assert attack("honest", honest, honest.pairs[0], 6_000, seed=0).proven <= honest.epsilon


def test_the_committed_audit_holds_sees_and_flags():
    """No certified claim is exceeded, half of one is proven, no attack is blind, and the paper's claims go over."""
    rows = json.loads((RESULTS / "audit.json").read_text(encoding="utf-8"))["audits"]
    found = {row["mechanism"]: Audit(**row) for row in rows}
    assert set(MECHANISMS) <= set(found)
    assert all(one.holds for one in found.values() if one.certified)
    gated = [one for name, one in found.items() if name.startswith("certified mean")]
    assert max(one.proven / one.claimed for one in gated) >= 0.5
    flagged = found["paper's AboveThreshold"]
    assert not flagged.certified
    assert flagged.proven > flagged.claimed
    whole = found["paper's mean, delta 1e-6"]
    assert not whole.certified
    assert whole.exact is not None
    assert whole.exact > whole.claimed
    assert min(one.proven for one in found.values()) > 0


def test_every_mean_is_attacked():
    source = inspect.getsource(mechanisms)
    for name in set(means.__all__) - {"MeanRelease", "mean"}:
        assert f"{name}(" in source


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match="no mechanism"):
        audit("sleeping", BUDGET, 100)
    with pytest.raises(InvalidInputError, match="2 trials"):
        audit("clipped mean", BUDGET, 1)
