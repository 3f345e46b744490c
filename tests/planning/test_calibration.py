"""What is believed of a model's length and intercept, from numbers alone."""

import math

import numpy as np
import pytest

from userdp.planning.calibration import (
    Belief,
    calibration_radius,
    calibration_share,
    expected_length,
    length_trust,
)


def test_asking_costs_less_with_more_users_and_more_for_more_numbers():
    shares = [calibration_share(n, 1) for n in (20, 100, 130, 200, 10**6)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (0.06, 0.03)
    assert calibration_share(150, 1) < calibration_share(150, 2) == calibration_share(150, 20)
    assert calibration_share(19, 2) == calibration_share(10**6, 0) == 0


def test_a_classifier_is_expected_to_have_gone_too_far_if_much_was_clipped():
    lengths = [expected_length(ratio) for ratio in (0.1, 0.5, 1.0, 3.0)]
    assert lengths == sorted(lengths)
    assert 0.7 < lengths[0] < lengths[1] < lengths[2] == lengths[3] == 1


def test_users_of_a_rare_class_are_let_in_and_nobody_counts_for_more_than_a_class():
    balanced, rare = (calibration_radius(100, 0.05, 2, True, odds) for odds in (0.0, -math.log(4)))
    assert rare == pytest.approx(4 * balanced)
    assert calibration_radius(100, 0.05, 2, True, 50.0) == calibration_radius(100, 9.0, 2, True, 0.0) < 1


@pytest.mark.parametrize("is_classification", [True, False])
def test_gradients_are_clipped_less_with_more_users(is_classification):
    radii = [calibration_radius(n, 9.0, 1, is_classification, 0.0) for n in (20, 400, 10**4, 10**6)]
    assert radii == sorted(radii)
    assert radii[0] < radii[1] < radii[2] == radii[3]


def test_before_anybody_is_asked_the_point_is_what_is_expected():
    belief = Belief.before(2.0, np.array([0.5, -0.5]), 0.5, is_classification=True)
    assert belief.point == pytest.approx([2 * expected_length(0.5), 0.5, -0.5])
    assert Belief.before(None, np.array([0.3]), 0.5, is_classification=False).point == pytest.approx([0.3])
    assert Belief.before(None, np.zeros(0), 0.5, is_classification=False).point.size == 0


@pytest.mark.parametrize("is_classification", [True, False])
def test_what_is_observed_exactly_is_believed_and_noise_is_not(is_classification):
    belief = Belief.before(1.0, np.zeros(1), 0.1, is_classification)
    observed = np.array([0.5, 1.5])
    assert belief.after(observed, 1e-9).point == pytest.approx(observed, abs=1e-6)
    assert belief.after(observed, 1e9).point == pytest.approx(belief.point, abs=1e-6)
    assert np.isfinite(belief.after(observed, 0.0).point).all()


def test_a_small_shift_is_taken_for_noise_and_a_large_one_is_made():
    belief, noise = Belief.before(None, np.zeros(1), 0.1, is_classification=True), 0.1
    small, large = (float(belief.after(np.array([z * noise]), noise).point[0]) for z in (1.0, 6.0))
    assert 0 < small < 0.2 * noise
    assert large > 5.5 * noise


def test_observing_twice_is_observing_once_with_less_noise():
    """The first time at what was expected, the second at what is believed: for a quadratic it is all the same."""
    belief, best = Belief.before(1.0, np.array([0.2]), 0.4, is_classification=True), np.array([0.7, 0.6])
    twice = belief.after(best, 0.2).after(best, 0.2).point
    assert twice == pytest.approx(belief.after(best, 0.2 / math.sqrt(2)).point, rel=1e-9)


def test_how_far_a_regression_s_intercept_may_be_off_follows_what_is_clipped():
    found = [
        float(
            Belief.before(None, np.zeros(1), ratio, is_classification=False).after(np.ones(1), 0.3).point[0]
        )
        for ratio in (0.1, 1.0, 3.0)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.5 * found[0]


def test_trust_in_a_length_is_what_bayes_rule_says():
    belief = Belief.before(2.0, np.zeros(0), 0.3, is_classification=True)
    before, after = float(belief.point[0]), float(belief.after(np.array([3.0]), 0.4).point[0])
    assert after - before == pytest.approx(length_trust(2.0, 0.4) * (3.0 - before))
