import itertools
import math
import warnings

import pytest

from userdp.planning.shares import shares
from userdp.privacy.budget import Budget

FEATURES = ("scale", "location", "centre", "second_moment", "radius")
STAGES = {
    False: ("base_rate", *FEATURES),
    True: ("target_scale", "target_location", "target_mean", *FEATURES),
}
# Numbers far from zero are looked for three times more.
FAR_LOOKS = 3


def spent(split):
    stages = {*STAGES[False], *STAGES[True], "target_look", "rates"}
    return sum(getattr(split, stage) ** 2 for stage in stages)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0, 10.0])
def test_the_descent_keeps_something_whatever_the_size(epsilon):
    """Nothing may be refused after noise was drawn: the stages never eat the whole budget, wherever numbers lie."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        budget = Budget(epsilon, 1e-6)
    for n, d, is_regression in itertools.product(
        (2, 5, 10, 20, 50, 85, 150, 200, 500, 2_000, 10**5), (1, 2, 5, 100, 10_000), (True, False)
    ):
        for booleans in {0, d // 2, d}:
            split = shares(n, d, budget, is_regression=is_regression, n_booleans=booleans)
            assert spent(split) + FAR_LOOKS * split.location**2 <= 0.998 * split.mu**2
            assert booleans < d or split.location == split.centre == split.second_moment == 0
            assert split.scale > 0 or split.location == 0


def test_stages_are_left_out_where_they_only_add_noise():
    budget = Budget(1.0, 1e-6)
    for is_regression in (False, True):
        few, many = (shares(n, 20, budget, is_regression=is_regression) for n in (30, 5_000))
        assert few.scale == few.location == few.centre == few.second_moment == 0
        assert all(getattr(many, stage) > 0 for stage in STAGES[is_regression])
        assert all(
            getattr(many, stage) == 0 for stage in {*STAGES[not is_regression]} - {*STAGES[is_regression]}
        )
    without = shares(5_000, 20, budget, is_regression=False, has_centre=False)
    assert without.location == without.centre == 0 < without.scale


def test_rates_are_for_booleans():
    with_booleans, without = (
        shares(5_000, 20, Budget(1.0, 1e-6), is_regression=False, n_booleans=n) for n in (15, 0)
    )
    assert with_booleans.rates > 0 == without.rates


def test_more_users_leave_more_to_the_descent():
    shares_spent = [
        spent(split) / split.mu**2
        for split in (shares(n, 5, Budget(1.0, 1e-6), is_regression=False) for n in (100, 1_000, 10_000))
    ]
    assert shares_spent == sorted(shares_spent, reverse=True)
    assert shares_spent[-1] < 0.15


def test_effective_users():
    split = shares(1_000, 5, Budget(1.0, 1e-6), is_regression=False)
    assert split.effective_users == pytest.approx(1_000 * split.mu)
    assert math.isfinite(spent(split))


@pytest.mark.parametrize(("n", "stages"), [
    (30, {"target_look"}),
    (60, {"target_look", "target_location", "target_mean"}),
    (90, {"target_scale", "target_location", "target_mean"}),
])  # fmt: skip
@pytest.mark.parametrize("has_centre", [True, False])
def test_few_users_look_at_targets_and_fewer_look_once(n, stages, has_centre):
    split = shares(n, 5, Budget(1.0, 1e-6), is_regression=True, has_centre=has_centre)
    found = {name for name in vars(split) if name.startswith("target") and getattr(split, name)}
    assert found == (stages if has_centre else stages & {"target_look", "target_scale"})
    assert sum(getattr(split, name) ** 2 for name in found) <= 0.9 * split.mu**2 * (1 + 1e-9)
