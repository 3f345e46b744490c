"""What a plan expects of a default fit, against fits."""

import numpy as np
import pytest

import userdp
from userdp.errors import InvalidInputError
from userdp.planning.descent import clip_ratio, descent, share_kept
from userdp.planning.expected import expected_excess_loss, users_for
from userdp.privacy import Budget

BUDGET = Budget(1.0, 1e-6)


def test_a_fit_loses_what_was_expected_within_a_factor_of_two():
    n, m, d = 1_000, 10, 25
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        theta = np.full(d, d**-0.5)
        X, fresh = rng.normal(size=(n * m, d)), rng.normal(size=(100_000, d))
        y = (rng.random(n * m) < 1 / (1 + np.exp(-X @ theta))).astype(int)
        model = userdp.LogisticRegression(epsilon=1.0, delta=1e-6, random_state=seed)
        found = model.fit(X, y, groups=np.repeat(np.arange(n), m)).decision_function(fresh)
        true = fresh @ theta
        p = 1 / (1 + np.exp(-true))
        losses.append(np.mean(np.logaddexp(0, found) - np.logaddexp(0, true) - p * (found - true)))
    assert 0.5 < expected_excess_loss(n, m, d, BUDGET) / np.mean(losses) < 2


def test_more_of_everything_good_loses_less():
    def expected(n=2_000, m=20, d=10, epsilon=1.0):
        return expected_excess_loss(n, m, d, Budget(epsilon, 1e-6))

    assert expected(n=20_000) < expected(n=5_000) < expected() < expected(n=500)
    assert expected(m=200) < expected() < expected(m=2)
    assert expected(d=3) < expected() < expected(d=50)
    assert expected(epsilon=3.0) < expected() < expected(epsilon=0.3)


def test_too_few_users_get_a_base_rate():
    assert 0.1 < expected_excess_loss(100, 20, 50, BUDGET) < 0.5


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan")])
def test_targets_are_positive(target):
    with pytest.raises(InvalidInputError, match="target error must be positive"):
        users_for(target, 20, 10, BUDGET)


def test_gradients_are_clipped_less_with_more_users_a_coefficient():
    ratios = [clip_ratio(n, 10) for n in (1, 30, 300, 3_000, 10**6)]
    assert ratios == [0.1, 0.1, 1.0, 3.0, 3.0]
    kept = [share_kept(ratio) for ratio in (0.1, 1.0, 3.0)]
    assert kept == sorted(kept)
    norms = np.random.default_rng(0).lognormal(0, 0.75 * np.log(2), size=100_000)
    assert kept == pytest.approx([np.minimum(1, ratio / norms).mean() for ratio in (0.1, 1.0, 3.0)], abs=0.01)


def test_less_noise_means_longer_descent_and_a_smaller_ridge():
    noisy, quiet = (descent(s, 20, curvature=0.25, signal=2.5, kept=0.8) for s in (0.05, 0.001))
    assert quiet.rounds > noisy.rounds
    assert quiet.ridge < noisy.ridge
    assert quiet.noise_std < noisy.noise_std
    assert descent(0.05, 20, curvature=0.25, signal=2.5, kept=0.8, rounds=7).rounds == 7
