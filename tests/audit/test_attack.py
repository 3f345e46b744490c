import math

import numpy as np
import pytest
from scipy.stats import binomtest

from userdp.audit import clopper_pearson, lower_bound
from userdp.privacy.gdp import epsilon_from_mu


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (400, 1000)])
def test_intervals_are_clopper_and_pearson_s(hits, trials):
    expected = binomtest(hits, trials).proportion_ci(0.99, method="exact")
    assert clopper_pearson(hits, trials, 0.005) == pytest.approx((expected.low, expected.high))


def test_a_gaussian_mechanism_is_nearly_measured_and_never_overstated():
    rng, mu, delta = np.random.default_rng(0), 1.0, 1e-2
    exact = epsilon_from_mu(mu, delta)
    found = [
        lower_bound(rng.normal(size=40_000), rng.normal(mu, size=40_000), delta, confidence=0.99)
        for _ in range(20)
    ]
    assert max(found) <= exact
    assert np.median(found) > 0.6 * exact


def test_confidence_is_kept_where_the_bound_is_tight():
    """Randomized response of epsilon 1: a bound at 90% may be over it in one of ten runs."""
    rng, p = np.random.default_rng(1), math.e / (1 + math.e)
    over = sum(
        lower_bound(
            (rng.random(2_000) < p).astype(float),
            (rng.random(2_000) < 1 - p).astype(float),
            0.0,
            confidence=0.9,
        )
        > 1.0
        for _ in range(300)
    )
    assert over <= 0.1 * 300


def test_refusals_and_both_roles_are_evidence():
    rng = np.random.default_rng(2)
    answers, refusing = rng.normal(size=8_000), rng.normal(size=8_000)
    refusing[rng.random(8_000) < 0.2] = np.nan
    assert lower_bound(answers, refusing, 1e-3) > 3
    assert lower_bound(refusing, answers, 1e-3) > 3


def test_many_coordinates_are_weighed_together():
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(20_000, 9)), rng.normal(0.5, size=(20_000, 9))
    assert lower_bound(one, other, 1e-2) > 2 * lower_bound(one[:, 0], other[:, 0], 1e-2)


def test_a_constant_and_a_mechanism_that_always_refuses_tell_nothing():
    assert lower_bound(np.zeros(100), np.zeros(100), 1e-3) == 0
    assert lower_bound(np.full(100, np.nan), np.full(100, np.nan), 1e-3) == 0


def test_a_side_that_always_refuses_is_told_apart_from_one_that_never_does():
    answers = np.random.default_rng(0).normal(size=(400, 2))
    refusals = np.full((400, 1), np.nan)
    assert lower_bound(answers, refusals, 1e-3) > 3
    assert lower_bound(refusals, answers, 1e-3) > 3
    assert lower_bound(refusals, refusals, 1e-3) == 0
