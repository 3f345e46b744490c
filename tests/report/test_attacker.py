import dataclasses
import math

import pytest
from scipy.stats import norm

from tests.report.examples import CERTIFIED, CLAIMED
from userdp.privacy import Spend
from userdp.report.attacker import Attacker

RATES = (0.001, 0.01, 0.05, 0.3, 0.5, 0.9)


def certified(*spent, epsilon=50.0, delta=0.5):
    """A statement whose stated budget is too loose to matter, so that the spends alone decide."""
    mu = math.hypot(*(spend.mu for spend in spent))
    return dataclasses.replace(CERTIFIED, epsilon=epsilon, delta=delta, mu=mu, spent=spent)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
def test_gaussian_noise_alone_gives_the_trade_off_curve_of_gdp(mu):
    attacker = Attacker.against(certified(Spend("mean", mu=mu)))
    for rate in RATES:
        exact = norm.cdf(mu + norm.ppf(rate))
        assert exact - 1e-12 <= attacker.detection(rate) <= exact + 1e-4
    assert attacker.coin_flip() == pytest.approx(norm.cdf(mu / 2), abs=1e-9)


def test_pure_epsilon_alone_gives_randomized_response():
    attacker = Attacker.against(certified(Spend("radius", epsilon=1.0)))
    for rate in RATES:
        exact = min(math.e * rate, 1 - (1 - rate) / math.e)
        assert exact - 1e-12 <= attacker.detection(rate) <= exact + 2e-3
    assert attacker.coin_flip() == pytest.approx(math.e / (1 + math.e), abs=1e-9)


def test_a_claim_is_bounded_by_its_budget_alone():
    attacker = Attacker.against(CLAIMED)
    assert attacker.detection(0.05) == pytest.approx(0.05 * math.e + 1e-6)
    assert attacker.detection(0.9) == pytest.approx(1 - (1 - 1e-6 - 0.9) / math.e)
    assert attacker.coin_flip() == pytest.approx((math.e + 1e-6) / (math.e + 1))


def test_a_proof_says_more_than_its_budget():
    proven, claimed = Attacker.against(CERTIFIED), Attacker.against(CLAIMED)
    assert all(rate < proven.detection(rate) < claimed.detection(rate) for rate in RATES)
    assert 0.5 < proven.coin_flip() < claimed.coin_flip()


def test_every_part_helps_the_attacker():
    alone = Attacker.against(certified(Spend("mean", mu=0.2)))
    more = Attacker.against(certified(Spend("mean", mu=0.2), Spend("radius", epsilon=0.1)))
    failing = Attacker.against(certified(Spend("mean", mu=0.2), Spend("gate", delta=0.01)))
    assert alone.detection(0.05) < more.detection(0.05)
    assert failing.detection(0.05) == pytest.approx(alone.detection(0.05) + 0.01)


@pytest.mark.parametrize("epsilon", [20.0, 499.0, 1e6])
def test_a_huge_epsilon_bounds_nothing_and_overflows_nowhere(epsilon):
    for statement in (CLAIMED, certified(Spend("mean", mu=60.0), Spend("radius", epsilon=epsilon))):
        attacker = Attacker.against(dataclasses.replace(statement, epsilon=epsilon))
        assert attacker.detection(0.05) == pytest.approx(1.0)
        assert attacker.coin_flip() == pytest.approx(1.0)
