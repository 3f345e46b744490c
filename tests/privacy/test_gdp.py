import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st

from userdp.privacy.gdp import delta_from_mu, epsilon_from_mu, mu_from_budget

epsilons = st.floats(1e-3, 20)
deltas = st.floats(1e-12, 0.4)


def exact_delta(epsilon, mu):
    with mpmath.workdps(60):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", [1e-8, 1e-5, 1e-3, 0.02, 0.0999, 0.1001, 0.5, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [-3.0, -0.5, 0.0, 1e-7, 1e-5, 1e-4, 0.1, 1.0, 4.0, 9.0])
def test_curve_equals_high_precision_arithmetic(epsilon, mu):
    exact = exact_delta(epsilon, mu)
    if exact > 1e-300:
        assert delta_from_mu(epsilon, mu) == pytest.approx(float(exact), rel=1e-10)


def test_no_gaussian_part_leaves_only_the_sign_of_epsilon():
    assert delta_from_mu(0.5, 0.0) == 0.0
    assert delta_from_mu(-0.5, 0.0) == pytest.approx(1 - np.exp(-0.5))


@given(epsilons, deltas)
def test_mu_fits_the_budget_and_wastes_nothing(epsilon, delta):
    mu = mu_from_budget(epsilon, delta)
    assert exact_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu * (1 + 1e-6)) > delta * (1 - 1e-4)


@given(st.floats(0.01, 8), deltas)
def test_epsilon_covers_the_curve_and_wastes_nothing(mu, delta):
    epsilon = epsilon_from_mu(mu, delta)
    assert exact_delta(epsilon, mu) <= delta
    if epsilon > 1e-6:
        assert exact_delta(epsilon * (1 - 1e-6), mu) > delta * (1 - 1e-4)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.5, 0.1), (1.0, 0.2367), (2.0, 0.7), (4.0, 1.5)])
def test_agrees_with_dp_accounting(epsilon, mu):
    pld = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-4)
    ours = delta_from_mu(epsilon, mu)
    assert ours <= pld.get_delta_for_epsilon(epsilon) * (1 + 1e-9)
    assert ours == pytest.approx(pld.get_delta_for_epsilon(epsilon), rel=2e-2)


def test_calibration_agrees_with_dp_accounting():
    reference = dp_accounting.gaussian_mechanism.get_sigma_gaussian(1.0, 1e-6)
    assert 1 / mu_from_budget(1.0, 1e-6) == pytest.approx(reference, rel=1e-6)


def test_clip_multipliers_of_the_reference_table():
    multipliers = [2 / mu_from_budget(epsilon, 1e-6) for epsilon in (0.5, 1, 2, 4)]
    assert np.round(multipliers, 2).tolist() == [16.12, 8.45, 4.46, 2.39]
