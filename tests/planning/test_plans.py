import math

import numpy as np
import pytest

import userdp
from userdp.data import Users
from userdp.errors import InvalidInputError, TooFewUsersError
from userdp.planning import rates
from userdp.problems import Logistic, SquaredDistance

BASE = {"n_users": 2_000, "items_per_user": 50, "n_features": 20, "epsilon": 1.0, "delta": 1e-6}


def test_the_paper_s_settings_are_its_formulas():
    n, m, d, epsilon, delta, G, R = 150, 2, 5, 9.0, 1e-6, 1.5, 0.7
    s = rates.convex(n, m, d, epsilon, delta, lipschitz=G, distance=R)
    T = math.ceil(m**2 * n**2 + m * n * math.sqrt(d))
    assert s.rounds == T
    assert s.radius == pytest.approx(G * math.log(n * d * m * math.exp(epsilon) * T / delta) / math.sqrt(m))
    assert s.smoothing_radius == pytest.approx(d**0.25 * R / math.sqrt(T))
    assert s.step_size == pytest.approx(
        R
        / G
        * min(
            math.sqrt(m) * n * epsilon / (T * math.sqrt(d) * math.log(m * n * d / delta)),
            T**-0.75,
            math.sqrt(n * m) / T,
        )
    )
    assert s.mean_delta == pytest.approx(delta / (2 * T * m * n * d))


def test_the_paper_s_phases_are_its_recursion():
    n, m, d, epsilon, delta, G, mu = 4_000, 10, 5, 1.0, 1e-6, 1.0, 0.5
    phases = rates.strongly_convex(n, m, d, epsilon, delta, lipschitz=G, strong_convexity=mu)
    k = math.ceil(math.log(math.log(m * n)))
    assert [phase.n_users for phase in phases] == [n // 2 ** (k + 1 - i) for i in range(1, k + 1)]
    assert phases[0].distance == pytest.approx(2 * G / mu)

    def E(size):
        return (
            4
            * G**2
            / mu
            * (1 / (size * m) + d * math.log(size * d * m / delta) ** 2 / (size**2 * epsilon**2 * m))
        )

    E_0 = E(phases[0].n_users / 2)
    for i, phase in enumerate(phases[1:], start=1):
        D = 16 * E(phases[i - 1].n_users) * (2 * G**2 / (16 * mu * E_0)) ** (1 / 2**i)
        assert phase.distance == pytest.approx(math.sqrt(2 * D / mu))


def test_rates_without_constants():
    assert rates.convex_rate(100, 4, 9, 0.5) == pytest.approx(1 / 20 + 3 / (100 * 2 * 0.5))
    assert rates.strongly_convex_rate(100, 4, 9, 0.5) == pytest.approx(1 / 400 + 9 / (100**2 * 4 * 0.25))


@pytest.mark.parametrize(
    "options", [{}, {"smoothness": math.inf}, {"strong_convexity": 0.5, "smoothness": 1.0}]
)
@pytest.mark.parametrize(
    ("change", "is_better"),
    [
        ({"n_users": 8_000}, True),
        ({"items_per_user": 200}, True),
        ({"epsilon": 4.0}, True),
        ({"n_features": 80}, False),
    ],
)
def test_more_data_and_budget_help_and_dimension_hurts(options, change, is_better):
    before = userdp.plan(**BASE, **options).excess_risk
    after = userdp.plan(**{**BASE, **change}, **options).excess_risk
    assert (after < before) == is_better


def test_users_for_a_target_is_consistent():
    plan = userdp.plan(**BASE)
    needed = plan.users_for(plan.excess_risk / 3)
    assert userdp.plan(**{**BASE, "n_users": needed}).excess_risk <= plan.excess_risk / 3
    assert userdp.plan(**{**BASE, "n_users": int(needed * 0.95)}).excess_risk > plan.excess_risk / 3
    with pytest.raises(InvalidInputError, match="target"):
        plan.users_for(0.0)


def test_users_needed_do_not_grow_with_the_dimension():
    for d in (10, 100, 1_000, 10_000):
        assert math.isfinite(userdp.plan(**{**BASE, "n_users": 1_000, "n_features": d}).excess_risk)


def test_strongly_convex_plans_have_phases_that_shrink():
    plan = userdp.plan(**BASE, strong_convexity=1.0, smoothness=1.0)
    distances = [phase.distance for phase in plan.phases]
    assert len(distances) == len(rates.phase_sizes(2_000, 50))
    assert distances == sorted(distances, reverse=True)


def test_the_paper_s_plan_says_that_it_is_not_certified():
    rng = np.random.default_rng(0)
    n, m, d = 60, 1, 2
    users = Users.from_rows(rng.normal(size=(n * m, d)), np.arange(n))
    plan = userdp.plan(
        n_users=n, items_per_user=m, n_features=d, epsilon=9.0, delta=1e-3, calibration="paper"
    )
    assert plan.phases[0].rounds == rates.convex(n, m, d, 9.0, 1e-3).rounds
    with pytest.warns(userdp.PrivacyWarning):
        solution = userdp.minimize(SquaredDistance(), users, plan=plan, random_state=0)
    assert not solution.privacy.certified


def test_a_plan_runs_and_its_users_must_fit():
    rng = np.random.default_rng(0)
    n, m, d = 1_000, 20, 3
    X = rng.normal(size=(n * m, d)) / math.sqrt(d)
    y = rng.random(n * m) < 1 / (1 + np.exp(-2 * X[:, 0]))
    plan = userdp.plan(n_users=n, items_per_user=m, n_features=d, epsilon=2.0, delta=1e-6, distance=2.0)
    users = Users.from_rows(X, np.repeat(np.arange(n), m), y)
    solution = userdp.minimize(Logistic(), users, plan=plan, random_state=0)
    assert solution.point[0] > 0.5
    with pytest.raises(InvalidInputError, match="the plan is for 1000 users"):
        userdp.minimize(Logistic(), users.take(np.arange(900)), plan=plan)
    with pytest.raises(InvalidInputError, match="not both"):
        userdp.minimize(Logistic(), users, plan=plan, epsilon=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"n_users": 0},
        {"items_per_user": 0},
        {"lipschitz": 0.0},
        {"distance": math.inf},
        {"calibration": "guess"},
    ],
)
def test_bad_input(change):
    with pytest.raises(InvalidInputError):
        userdp.plan(**{**BASE, **change})


def test_too_few_users_says_how_many():
    with pytest.raises(TooFewUsersError, match=r"at least \d+"):
        userdp.plan(**{**BASE, "n_users": 20})
