"""Algorithm 2 to the letter, and the slips in its constants."""

import math

import numpy as np
import pytest

from userdp.errors import InvalidInputError, PrivacyWarning
from userdp.means import ConcentratedMean
from userdp.means.friends import friend_counts
from userdp.means.paper import keep_probabilities, noise_scale, users_needed
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget


def score(x, tau):
    return friend_counts(x, tau).sum() / len(x)


def circle(n, radius):
    angle = np.linspace(0, 2 * np.pi, n - 1, endpoint=False)
    return np.vstack([np.zeros(2), radius * np.column_stack([np.cos(angle), np.sin(angle)])])


def test_slip_the_score_has_sensitivity_two():
    """One user sits in a row and in a column: 2 (n-1)/n, and (2n-1)/n when a user may be empty."""
    n = 20
    together = np.zeros((n, 1))
    apart, empty = together.copy(), together.copy()
    apart[0], empty[0] = 100.0, np.nan
    assert score(together, 1.0) - score(apart, 1.0) == pytest.approx(2 * (n - 1) / n)
    assert score(together, 1.0) - score(empty, 1.0) == pytest.approx((2 * n - 1) / n)


def test_slip_keep_probabilities_can_move_by_much_more_than_two():
    """A centre and 11 points on a circle of 0.6 (2 tau): removing the centre moves every other f_j."""
    n, tau = 12, 0.5
    with_centre = circle(n, 0.6 * 2 * tau)
    without = with_centre.copy()
    without[0] = 100.0
    counts, counts_2 = (friend_counts(x, 2 * tau) for x in (with_centre, without))
    assert (counts[1:] == 8).all()
    assert (counts_2[1:] == 7).all()
    total = np.abs(keep_probabilities(counts) - keep_probabilities(counts_2)).sum()
    assert total == pytest.approx(1 + 6 * (n - 1) / n)
    assert total > 2


def test_slip_the_asymptotic_radius_exceeds_the_worst_case():
    """Tau = G log(n d m e^eps T/delta)/sqrt(m) at G = 1, m = 100 is above G, what clipping needs."""
    n, d, m, epsilon, delta = 10_000, 10, 100, 1.0, 1e-6
    rounds = m**2 * n**2
    assert math.log(n * d * m * math.exp(epsilon) * rounds / delta) / math.sqrt(m) > 4


def test_noise_formula():
    tau, n, T, epsilon, delta = 0.3, 500, 40, 1.5, 1e-5
    variance = (
        8 * tau**2 * T * math.log(math.exp(epsilon) * T / delta) * math.log(math.exp(epsilon / 2) / delta)
    ) / (n**2 * epsilon**2)
    assert noise_scale(tau, n, T, epsilon, delta) == pytest.approx(math.sqrt(variance))


def test_keep_probabilities_follow_the_ramp():
    counts = np.arange(1, 13)  # n = 12: ramp from 6 to 8
    expected = [0] * 5 + [0, 0.5] + [1] * 5
    assert keep_probabilities(counts) == pytest.approx(expected)


def test_users_the_paper_asks_for():
    assert users_needed(10, 1.0, 1e-6) == pytest.approx(40 * math.log(4e7))


def paper(radius):
    return ConcentratedMean(radius, calibration="paper")


def test_concentrated_data_gives_an_unbiased_noisy_mean():
    n, budget = 2_000, Budget(1.0, 1e-6)
    x = np.random.default_rng(0).normal(5.0, 0.01, size=(n, 3))
    calibrated = paper(0.1).calibrate(n, 3, budget)
    errors = np.array([calibrated.start(SeededNoise(seed)).answer(x) - x.mean(axis=0) for seed in range(400)])
    sigma = noise_scale(0.1, n, 1, 1.0, 1e-6)
    assert errors.std() == pytest.approx(sigma, rel=0.1)
    assert abs(errors.mean()) < 5 * sigma / math.sqrt(1200)


def test_scattered_data_halts_and_says_zero():
    x = np.random.default_rng(0).normal(0.0, 100.0, size=(2_000, 2))
    release = paper(0.1).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    assert release.halted
    assert release.value.tolist() == [0.0, 0.0]
    assert not release.privacy.certified


def test_after_halting_every_answer_is_zero():
    n = 2_000
    session = paper(0.1).calibrate(n, 1, Budget(1.0, 1e-6), rounds=3).start(SeededNoise(0))
    together, apart = np.zeros((n, 1)) + 7, np.arange(n)[:, None] * 100.0
    assert session.answer(together)[0] == pytest.approx(7, abs=1)
    assert session.answer(apart).tolist() == [0.0]
    assert session.answer(together).tolist() == [0.0]
    assert session.halted
    with pytest.raises(InvalidInputError, match="rounds"):
        session.answer(together)


def test_outliers_are_removed():
    n = 2_000
    x = np.zeros((n, 1)) + 1.0
    x[:100] = 1e6
    release = paper(0.5).release(x, epsilon=2.0, delta=1e-6, random_state=0)
    assert release.value[0] == pytest.approx(1.0, abs=0.5)


def test_the_paper_s_range_of_epsilon_and_users():
    with pytest.warns(PrivacyWarning), pytest.raises(InvalidInputError, match="below 10"):
        paper(1.0).calibrate(1_000, 1, Budget(10.0, 1e-6))
    with pytest.warns(PrivacyWarning, match="at least"):
        paper(1.0).calibrate(50, 1, Budget(1.0, 1e-6))


def test_the_threshold_is_the_paper_s(scripted_noise):
    """The score n^2 passes and just under 4n^2/5 pairs does not, with no noise."""
    n = 10
    noise = scripted_noise(0, 0, 0)
    with pytest.warns(PrivacyWarning):
        calibrated = paper(1.0).calibrate(n, 1, Budget(1.0, 1e-6), rounds=2)
    session = calibrated.start(noise)
    assert noise.asked[0][1] == pytest.approx(2 * n / 0.5)
    x = np.zeros((n, 1))
    x[0] = 100.0  # 81 + 1 = 82 of 100 pairs
    noise.draws = [0, 0]
    session.answer(x)
    assert not session.halted
    x[1] = 200.0  # 64 + 2 = 66 pairs
    noise.draws = [0]
    session.answer(x)
    assert session.halted
