"""What a plan expects of a default fit, against fits."""

import numpy as np
import pytest

import userdp
from userdp.errors import InvalidInputError
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
