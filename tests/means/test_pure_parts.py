"""Pure parts in the Gaussian accounting."""

import math

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import norm

from userdp.errors import InvalidInputError
from userdp.means.pure_parts import mu_of_pure, pure_of_mu, split_evenly
from userdp.privacy import Budget
from userdp.privacy.accounting import FailureEvent, GaussianEvent, PureEvent, delta_of
from userdp.privacy.gdp import delta_from_mu

BUDGET = Budget(1.0, 1e-6)


def randomized_response_delta(epsilon, parts, each):
    """Exact delta of ``parts`` randomized responses of ``each``: the worst pure parts there are."""
    k = np.arange(parts + 1)
    log_p, log_q = -np.log1p(np.exp(-each)), -np.log1p(np.exp(each))
    log_mass = gammaln(parts + 1) - gammaln(k + 1) - gammaln(parts - k + 1) + k * log_p + (parts - k) * log_q
    return np.sum(np.exp(log_mass) * np.maximum(0, -np.expm1(epsilon - (2 * k - parts) * each)))


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.3, 0.999, 1.0, 3.0, 12.0])
def test_pure_dp_is_gaussian_dp_at_the_corner_and_not_below(epsilon):
    """Randomized response errs with 1/(1+e^eps) on both sides; mu-GDP allows exactly that much."""
    mu = mu_of_pure(epsilon)
    corner = 1 / (1 + math.exp(epsilon))
    assert norm.sf(mu / 2) == pytest.approx(corner, rel=1e-8)
    assert norm.sf(mu / 2) <= corner * (1 + 1e-14)
    assert norm.sf(0.9 * mu / 2) > corner


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.3, 0.8, 2.0, 12.0])
def test_inverse_rounds_down(epsilon):
    mu = mu_of_pure(epsilon)
    assert epsilon * (1 - 1e-8) < pure_of_mu(mu) <= epsilon * (1 + 1e-10)
    assert mu_of_pure(pure_of_mu(mu)) <= mu


@pytest.mark.parametrize(("parts", "each"), [(1, 0.5), (8, 0.2), (100, 0.05), (1000, 0.01)])
def test_composed_randomized_responses_stay_below_the_gaussian_curve(parts, each):
    mu = mu_of_pure(each) * math.sqrt(parts)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        assert randomized_response_delta(epsilon, parts, each) <= delta_from_mu(epsilon, mu) + 1e-15


@pytest.mark.parametrize("count", [1, 2, 30, 200, 10_000])
@pytest.mark.parametrize(
    "beside",
    [(), (PureEvent("radius", 0.2),), (FailureEvent("x", 1e-7),), (GaussianEvent("other", 1.0, 10.0),)],
)
def test_the_split_fits_and_a_tenth_more_does_not(count, beside):
    parts = split_evenly("parts", count, BUDGET, beside)
    assert delta_of((*beside, *parts.events), 1.0) <= 1e-6
    assert randomized_response_delta(1.0, count, parts.epsilon) <= 1e-6
    (event,) = parts.events
    if isinstance(event, PureEvent):
        more = PureEvent("parts", event.epsilon * 1.1)
    else:
        more = GaussianEvent("parts", mu_of_pure(1.1 * parts.epsilon) * 2**30, 2.0**30, rounds=count)
    assert delta_of((*beside, more), 1.0) > 1e-6


def test_few_parts_are_summed_and_many_composed():
    assert isinstance(split_evenly("parts", 2, BUDGET).events[0], PureEvent)
    assert split_evenly("parts", 2, BUDGET).epsilon == pytest.approx(0.5)
    many = split_evenly("parts", 1_000, BUDGET)
    assert isinstance(many.events[0], GaussianEvent)
    assert many.epsilon > 5 / 1_000


def test_nothing_left():
    with pytest.raises(InvalidInputError, match="leave no budget for the parts"):
        split_evenly("parts", 2, BUDGET, (PureEvent("other", 1.0),))
