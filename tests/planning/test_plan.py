"""Plans read no data: what they predict, what they refuse."""

import contextlib
import math
from dataclasses import replace

import pytest

import userdp
from userdp.errors import InvalidInputError, PrivacyWarning, TooFewUsersError
from userdp.means.paper import noise_scale
from userdp.planning import rates
from userdp.planning.plan import MIN_ROUNDS, concentration_radius
from userdp.privacy import Budget

BASE = {"n_users": 2_000, "items_per_user": 20, "n_features": 10, "epsilon": 1.0, "delta": 1e-6}
KINDS = {
    "smooth": {},
    "not smooth": {"smoothness": math.inf, "max_rounds": 10**6},
    "strongly convex": {"strong_convexity": 0.5, "smoothness": 1.0},
    "paper": {"calibration": "paper"},
}


def plan(**changes):
    return userdp.plan(**{**BASE, **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_the_predicted_risk_falls_with_users_items_and_epsilon_and_grows_with_features(kind):
    options = KINDS[kind]
    for name, values, sign in (
        ("n_users", (2_000, 8_000, 50_000), -1),
        ("items_per_user", (5, 20, 80), -1),
        ("epsilon", (0.5, 1.0, 4.0), -1),
        ("n_features", (5, 50, 500), 1),
    ):
        risks = [plan(**options, **{name: value}).excess_risk for value in values]
        assert sorted(risks, reverse=sign < 0) == risks, name
        assert risks[0] != risks[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_users_for_a_target_are_enough_and_not_many_too_many(kind):
    p = plan(**KINDS[kind])
    for factor in (2.0, 1 / 3):
        n = p.users_for(factor * p.excess_risk)
        assert plan(**KINDS[kind], n_users=n).excess_risk <= factor * p.excess_risk
        with contextlib.suppress(TooFewUsersError):
            assert plan(**KINDS[kind], n_users=int(0.9 * n)).excess_risk > factor * p.excess_risk


def test_users_for_a_target_out_of_reach():
    with pytest.raises(InvalidInputError, match="max_rounds"):
        plan().users_for(1e-12)
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidInputError, match="positive"):
            plan().users_for(bad)


def test_the_users_needed_do_not_grow_with_the_dimension():
    """At n = 1,000 and a fixed m every dimension gets a plan; the noise per coordinate does not grow."""
    plans = [plan(n_users=1_000, n_features=d, radius=0.5) for d in (10, 100, 1_000, 10_000)]
    per_round = [p.phases[0].noise_std / math.sqrt(p.phases[0].rounds) for p in plans]
    assert per_round == pytest.approx([per_round[0]] * 4, rel=1e-6)


def test_what_was_planned_is_what_the_mean_is_calibrated_to():
    for options in KINDS.values():
        p = (
            plan(**options, radius=0.5)
            if "calibration" not in options
            else plan(n_users=400, items_per_user=1, **options)
        )
        for phase in p.phases:
            if p.calibration == "paper":
                setting = rates.convex(phase.n_users, 1, 10, 1.0, 1e-6)
                expected = noise_scale(setting.radius, phase.n_users, setting.rounds, 1.0, setting.mean_delta)
                assert phase.noise_std == pytest.approx(expected)
                assert phase.budget == Budget(1.0, setting.mean_delta)
                with pytest.warns(PrivacyWarning, match="at least"):
                    calibrated = p.mean(phase).calibrate(phase.n_users, 10, phase.budget, phase.rounds)
                assert calibrated.noise_std == pytest.approx(expected)
            else:
                calibrated = p.mean(phase).calibrate(phase.n_users, 10, phase.budget, phase.rounds)
                assert calibrated.noise_std(calibrated.setting.index) == pytest.approx(
                    phase.noise_std, rel=1e-6
                )
                assert phase.budget == p.budget


def test_phases_shrink_the_distance():
    p = plan(**KINDS["strongly convex"], n_users=20_000)
    assert tuple(phase.n_users for phase in p.phases) == rates.phase_sizes(20_000, 20)
    distances = [phase.distance for phase in p.phases]
    assert distances == sorted(distances, reverse=True)
    assert plan(**KINDS["smooth"]).phases[0].smoothing_radius == 0
    assert plan(**KINDS["not smooth"]).phases[0].smoothing_radius > 0


def test_rounds_stay_within_what_the_computer_can_afford():
    many = plan(n_users=10**6, smoothness=math.inf)
    assert many.phases[0].rounds == 10_000
    assert plan(n_users=10**6, smoothness=math.inf, max_rounds=7).phases[0].rounds == 7
    assert plan(n_users=1_000).phases[0].rounds >= MIN_ROUNDS
    assert plan(smoothness=0.0).phases[0].rounds == MIN_ROUNDS  # a linear loss


def test_the_step_is_stable_and_the_radius_never_wider_than_all_gradients():
    assert plan(n_users=10**7, smoothness=4.0).phases[0].step_size <= 1 / 4.0
    assert concentration_radius(1_000, 1, 1, lipschitz=3.0) == 6.0
    assert concentration_radius(1_000, 10**4, 10**6) == pytest.approx(math.sqrt(2) / 100, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"n_users": 0}, "n_users"),
        ({"n_users": 10.5}, "n_users"),
        ({"items_per_user": 0}, "items_per_user"),
        ({"n_features": 0}, "n_features"),
        ({"n_features": "ten"}, "n_features"),
        ({"lipschitz": 0.0}, "lipschitz"),
        ({"lipschitz": math.inf}, "lipschitz"),
        ({"distance": -1.0}, "distance"),
        ({"smoothness": -1.0}, "smoothness"),
        ({"smoothness": math.nan}, "smoothness"),
        ({"strong_convexity": -1.0}, "strong_convexity"),
        ({"strong_convexity": math.inf}, "strong_convexity"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"radius": 0.0}, "radius"),
        ({"radius": math.nan}, "radius"),
        ({"calibration": "guess"}, "calibration"),
    ],
)
def test_bad_numbers(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        plan(**changes)


def test_too_few_users_says_how_many_would_do():
    with pytest.raises(TooFewUsersError, match=r"at least \d+") as error:
        plan(n_users=20)
    needed = int(str(error.value).split("at least ")[1].split(",")[0])
    assert plan(n_users=needed).n_users == needed
    with pytest.raises(TooFewUsersError):
        plan(n_users=100, strong_convexity=1.0)
    with pytest.raises(TooFewUsersError):
        plan(n_users=3, strong_convexity=1.0)


def test_a_large_epsilon_warns():
    with pytest.warns(PrivacyWarning):
        p = plan(epsilon=12.0)
    assert replace(p, n_users=1).budget.epsilon == 12.0
