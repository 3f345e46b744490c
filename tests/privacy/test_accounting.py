import math

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from scipy.stats import norm

from userdp.errors import InvalidInputError
from userdp.privacy.accounting import (
    SMOOTHING_WIDTH,
    FailureEvent,
    GaussianEvent,
    PureEvent,
    composed_delta,
    delta_of,
    epsilon_of,
    gaussian_scale,
    gaussian_tail,
    mu_beside,
)
from userdp.privacy.gdp import delta_from_mu


def discrete_gaussian_delta(epsilon, scale, shift):
    """Exact delta of one discrete Gaussian whose integer centre moves by ``shift``."""
    k = np.arange(-int(60 * scale) - shift, int(60 * scale) + shift + 1)
    p = np.exp(-0.5 * (k / scale) ** 2)
    q = np.exp(-0.5 * ((k - shift) / scale) ** 2)
    p, q = p / p.sum(), q / q.sum()
    return np.maximum(q - math.exp(epsilon) * p, 0).sum()


@pytest.mark.parametrize("pure", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("mu", [0.1, 0.2, 0.6])
def test_pure_and_gaussian_parts_compose_like_the_privacy_loss_distribution(pure, mu):
    interval = 1e-4
    response = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(pure, 0), value_discretization_interval=interval
    )
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=interval
    )
    both = response.compose(gaussian)
    for epsilon in (0.5, 1.0, 2.0):
        ours, theirs = composed_delta(epsilon, mu, pure), both.get_delta_for_epsilon(epsilon)
        assert ours <= theirs * (1 + 1e-9)
        assert ours == pytest.approx(theirs, rel=5e-2, abs=1e-15)


@pytest.mark.parametrize("scale", [2.83, 3.0, 5.0, 20.0])
@pytest.mark.parametrize("shift", [1, 2, 7])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_discrete_gaussian_is_within_its_accounting(scale, shift, epsilon):
    event = GaussianEvent("answer", sensitivity=shift, scale=scale)
    exact = discrete_gaussian_delta(epsilon, scale, shift)
    assert exact <= delta_of([event], epsilon) * (1 + 1e-9) + 1e-14


def test_discrete_gaussian_accounting_would_notice_a_scale_cut_by_a_tenth():
    event = GaussianEvent("answer", sensitivity=1.0, scale=20.0)
    assert discrete_gaussian_delta(0.1, 18.0, 1) > delta_of([event], 0.1)


def test_a_plain_gaussian_curve_is_not_enough_for_coarse_discrete_noise():
    coarse = 0.5
    assert discrete_gaussian_delta(1.0, coarse, 1) > 1.1 * delta_from_mu(1.0, 1 / coarse)


def test_noise_too_coarse_for_the_lemma_is_refused():
    with pytest.raises(InvalidInputError, match="finer lattice"):
        GaussianEvent("answer", sensitivity=0.1, scale=SMOOTHING_WIDTH)


@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("rounds", [1, 7, 10_000])
def test_scale_is_the_inverse_of_mu_and_rounds_up(mu, rounds):
    scale = gaussian_scale(1000.0, mu, rounds)
    event = GaussianEvent("answer", 1000.0, scale, rounds=rounds)
    assert event.mu <= mu * (1 + 1e-15)
    assert event.mu == pytest.approx(mu, rel=1e-9)


@pytest.mark.parametrize("scale", [3.0, 11.3, 500.0])
def test_tail_bound_covers_the_exact_tail(scale):
    k = np.arange(-int(60 * scale), int(60 * scale) + 1)
    p = np.exp(-0.5 * (k / scale) ** 2)
    p /= p.sum()
    for units in (1, int(scale), int(3 * scale), int(5 * scale)):
        exact = p[k >= units].sum()
        assert exact <= gaussian_tail(units, scale)
        assert exact > norm.sf((units + 1) / scale)


def test_tail_bound_needs_a_whole_unit():
    with pytest.raises(InvalidInputError, match="one lattice unit"):
        gaussian_tail(0, 5.0)


def test_events_add_up():
    events = [
        GaussianEvent("a", 300.0, 1000.0, coordinates=3),
        GaussianEvent("b", 400.0, 1000.0, rounds=4),
        PureEvent("c", 0.1),
        PureEvent("d", 0.2),
        FailureEvent("e", 1e-7),
    ]
    mu = math.sqrt(0.3**2 + 4 * 0.4**2)
    assert delta_of(events, 4.0) == pytest.approx(composed_delta(4.0, mu, 0.3) + 1e-7, rel=1e-4)


def test_epsilon_of_inverts_delta_of():
    events = [GaussianEvent("a", 200.0, 1000.0), PureEvent("b", 0.2), FailureEvent("c", 1e-8)]
    epsilon = epsilon_of(events, 1e-6)
    assert delta_of(events, epsilon) <= 1e-6 < delta_of(events, epsilon * 0.999)
    assert epsilon_of([FailureEvent("c", 1e-3)], 1e-6) == math.inf


def test_what_is_left_beside_other_events_fills_the_budget():
    beside = (PureEvent("radius", 0.1), FailureEvent("gate", 1e-7), GaussianEvent("gate", 100.0, 1000.0))
    mu = mu_beside(beside, 1.0, 1e-6)
    whole = (*beside, GaussianEvent("mean", 1e6, gaussian_scale(1e6, mu)))
    assert 0.999e-6 < delta_of(whole, 1.0) <= 1e-6
    assert mu_beside((PureEvent("radius", 1.0),), 1.0, 1e-6) == 0
    assert mu_beside((FailureEvent("gate", 1e-6),), 1.0, 1e-6) == 0
