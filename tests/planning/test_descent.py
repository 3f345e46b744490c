"""What an estimator's descent chooses, from numbers alone."""

import math

import numpy as np
import pytest

from userdp.planning.descent import (
    AVERAGED_SHARE,
    Group,
    clip_ratio,
    descent,
    expected_groups,
    lengthening,
    pilot_share,
    seen,
    share_kept,
)

H = 0.25


def test_gradients_are_clipped_less_with_more_users_a_coefficient():
    ratios = [clip_ratio(n, 10) for n in (1, 30, 300, 3_000, 10**6)]
    assert ratios == [0.1, 0.1, 1.0, 3.0, 3.0]
    kept = [share_kept(ratio) for ratio in (0.1, 1.0, 3.0)]
    assert kept == sorted(kept)
    norms = np.random.default_rng(0).lognormal(0, 0.75 * np.log(2), size=100_000)
    assert kept == pytest.approx([np.minimum(1, ratio / norms).mean() for ratio in (0.1, 1.0, 3.0)], abs=0.01)


def test_the_clip_is_wider_where_one_class_is_rare():
    balanced, rare = clip_ratio(300, 10), clip_ratio(300, 10, -math.log(16))
    assert rare == pytest.approx(4 * balanced) == clip_ratio(300, 10, math.log(16))
    assert clip_ratio(300, 10, 1e9) < 100


def test_time_does_not_depend_on_the_unit_of_the_target():
    one, other = (
        descent((Group(np.ones(20), 0.05 * unit**2),), 0.01 * unit, signal=unit**2, curvature=H, kept=0.8)
        for unit in (1.0, 1_000.0)
    )
    assert one.rounds == other.rounds
    assert one.ridges[0] == pytest.approx(other.ridges[0])


def test_a_signal_is_shared_out():
    numbers, booleans = expected_groups([np.ones(4), np.ones(100)], np.array([0.8, 0.4]))
    assert 4 * numbers.variance == pytest.approx(0.8)
    assert 100 * booleans.variance == pytest.approx(0.4)


def test_less_noise_means_longer_descent_and_a_smaller_ridge():
    group = (Group(np.ones(20), 0.05),)
    noisy, quiet = (descent(group, s, signal=1.0, curvature=H, kept=0.8) for s in (0.05, 0.001))
    assert quiet.rounds > noisy.rounds
    assert np.all(quiet.ridges[0] < noisy.ridges[0])
    assert np.all(quiet.noise_std[0] < noisy.noise_std[0])
    assert descent(group, 0.05, signal=1.0, curvature=H, kept=0.8, rounds=7).rounds == 7


def test_a_pilot_stronger_than_expected_adds_no_time_but_lowers_the_ridge():
    weak, expected, strong = (
        descent((Group(np.ones(20), variance),), 0.01, signal=1.0, curvature=H, kept=0.8)
        for variance in (0.005, 0.05, 0.5)
    )
    assert weak.rounds < expected.rounds == strong.rounds
    assert np.all(strong.ridges[0] < expected.ridges[0])


def test_a_ridge_is_the_best_one_for_its_noise():
    """Coefficients of the expected variance, noise of the said one: no other ridge loses less on average."""
    group, rng = Group(np.ones(50), 0.04), np.random.default_rng(0)
    noise = 0.03
    ridge = descent((group,), noise, signal=1.0, curvature=H, kept=1.0).ridges[0][0]
    truth = rng.normal(0, math.sqrt(group.variance), size=200_000)
    gradients = H * truth + rng.normal(0, noise, size=truth.size)

    def loses(ridge):
        return np.mean((gradients / (H + ridge) - truth) ** 2)

    assert loses(ridge) < min(loses(ridge * 1.1), loses(ridge / 1.1))


@pytest.mark.parametrize("variance", [0.001, 0.05, 1.0])
def test_a_pilot_tells_how_strong_coefficients_are(variance):
    rng, prior = np.random.default_rng(0), Group(np.ones(200), 0.05)
    coefficients = rng.normal(0, math.sqrt(variance + 0.01**2), size=200)
    assert seen(prior, coefficients, 0.01).variance == pytest.approx(variance, rel=0.4)


def test_a_pilot_of_noise_changes_nothing_much():
    rng, prior = np.random.default_rng(0), Group(np.ones(20), 0.05)
    found = seen(prior, rng.normal(0, 30.0, size=20), 30.0).variance
    assert 0.3 < found / prior.variance < 3


def test_a_pilot_is_as_good_as_its_share_of_the_rounds_within_reach():
    group = (Group(np.ones(20), 0.05),)

    def head_start(pilot):
        chosen = descent(group, 0.05, signal=1.0, curvature=H, kept=0.8, pilot=pilot)
        return chosen.head_start / chosen.rounds

    assert head_start(0.0) == 0
    assert head_start(0.02) == pytest.approx(0.02)
    assert head_start(0.5) == head_start(5.0) < 0.5


@pytest.mark.parametrize(
    ("noise", "rounds", "pilot"), [(0.05, None, 0.1), (0.001, None, 0.02), (0.01, 12, 0.0)]
)
def test_how_far_a_coefficient_has_gone_is_what_a_descent_without_noise_shows(noise, rounds, pilot):
    """One coefficient of the said curvature, its gradients cut to ``kept``, from the pilot's step on."""
    kept, best = 0.8, 1.0
    chosen = descent(
        (Group(np.ones(20), 0.05),), noise, signal=1.0, curvature=H, kept=kept, rounds=rounds, pilot=pilot
    )
    step, ridge = chosen.steps[0][0], chosen.ridges[0][0]
    theta, iterates = chosen.head_start * step * kept * H * best, []
    for _ in range(chosen.rounds):
        theta -= step * kept * (H * (theta - best) + ridge * theta)
        iterates.append(theta)
    late = iterates[-round(AVERAGED_SHARE * len(iterates)) :]
    assert chosen.gone[0] == pytest.approx(np.full(20, np.mean(late)), rel=1e-3)


def test_of_the_callers_own_ridge_nothing_is_taken_back():
    own = descent((Group(np.ones(20), 0.05),), 1e-6, signal=1.0, curvature=H, kept=0.8, ridge=H)
    assert own.gone[0] == pytest.approx(np.ones(20), abs=1e-3)


@pytest.mark.parametrize("variance", [0.002, 0.05, 1.0])
def test_coefficients_are_made_as_long_as_they_are_best(variance):
    """Whatever was expected of them: no length that knew the truth would lose much less."""
    rng, group, gone, noise = np.random.default_rng(0), Group(np.ones(200), 0.05), 0.6, 0.05
    truth = rng.normal(0, math.sqrt(variance), size=200)
    found = gone * truth + rng.normal(0, noise, size=200)
    longer = lengthening(group, np.full(200, gone), found, np.full(200, noise))
    best = found @ truth / (found @ found)

    def loses(length):
        return np.sum((length * found - truth) ** 2)

    assert loses(longer) < 1.02 * loses(best)
    signal = gone**2 * variance
    assert longer == pytest.approx(np.full(200, signal / (signal + noise**2) / gone), rel=0.25)


def test_nothing_is_led_on_further_than_four_times():
    longer = lengthening(Group(np.ones(3), 0.05), np.full(3, 1e-9), np.ones(3), np.full(3, 1e-3))
    assert longer == pytest.approx(np.full(3, 4.0), rel=0.01)


def test_of_what_is_less_important_less_is_expected():
    """A quarter as important: a quarter of the variance, four times the ridge; and it counts as a quarter."""
    importance = np.array([1.0, 1.0, 0.25, 0.25, 0.25, 0.25])
    (group,) = expected_groups([importance], np.array([0.6]))
    assert group.size == 3
    assert group.variances == pytest.approx(0.2 * importance)
    (ridges,) = descent((group,), 0.05, signal=1.0, curvature=H, kept=0.8).ridges
    assert ridges == pytest.approx(ridges[0] / importance)


def test_a_pilot_gets_more_where_it_sees_less():
    groups = (Group(np.ones(50), 0.02),)
    shares = [pilot_share(groups, noise, H) for noise in (1e-4, 0.01, 0.02, 1.0)]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.02, 0.15)
