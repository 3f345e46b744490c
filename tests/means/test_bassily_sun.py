import math

import numpy as np
import pytest
from scipy.stats import norm

from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means import BassilySunMean, ConcentratedMean
from userdp.means.bassily_sun import paper_users
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import FailureEvent, PureEvent, delta_of

BUDGET = Budget(1.0, 1e-6)


def crowd(n=2_000, d=3, centre=50.0, spread=0.1):
    return np.random.default_rng(0).normal(centre, spread, size=(n, d))


@pytest.mark.parametrize("centre", [0.0, -7.0, 1e6])
def test_releases_the_mean_of_concentrated_data_wherever_it_is(centre):
    x = crowd(centre=centre)
    release = BassilySunMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert np.abs(release.value - x.mean(axis=0)).max() < 6 * release.noise_std
    assert release.noise_std < 0.05
    assert release.privacy.certified
    assert any("paper asks" in assumption for assumption in release.privacy.assumptions)


@pytest.mark.parametrize("rounds", [1, 3, 30, 200])
@pytest.mark.parametrize("beside", [(), (PureEvent("other", 0.2), FailureEvent("other", 1e-7))])
def test_rounds_compose_to_the_budget(rounds, beside):
    calibrated = BassilySunMean(1.0).calibrate(50_000, 3, BUDGET, rounds, beside)
    each = calibrated.mean.budget
    assert delta_of((*beside, calibrated.failures, *calibrated.parts.events), 1.0) <= 1e-6
    assert calibrated.parts.count == rounds
    assert each.epsilon == calibrated.parts.epsilon
    assert rounds * each.delta <= calibrated.failures.delta


@pytest.mark.parametrize("rounds", [1, 30])
def test_a_round_is_certified_at_its_own_budget_and_no_better(rounds):
    """The whole round, gate and mean, fits (epsilon_i, delta_i); with a tenth less noise it would not."""
    calibrated = BassilySunMean(1.0).calibrate(10_000, 3, BUDGET, rounds)
    mean, each = calibrated.mean, calibrated.mean.budget
    event = mean.mean_event(9_800)
    assert mean.rounds == 1
    assert delta_of((*mean.setting.events, event), each.epsilon) <= each.delta
    less = type(event)(event.name, event.sensitivity, 0.9 * event.scale, event.coordinates)
    assert delta_of((*mean.setting.events, less), each.epsilon) > each.delta


def test_the_epsilon_of_a_round_beats_the_paper_s_composition():
    rounds = 100
    ours = BassilySunMean(1.0).calibrate(50_000, 3, BUDGET, rounds).parts.epsilon
    assert 1 / math.sqrt(8 * rounds * math.log(1e6)) < ours < 1 / math.sqrt(rounds)


def test_users_needed_grow_like_the_root_of_the_rounds():
    def needed(rounds):
        with pytest.raises(TooFewUsersError, match=r"at least \d+") as error:
            BassilySunMean(1.0).calibrate(10, 3, BUDGET, rounds)
        number = int(str(error.value).split("at least ")[1].split(",")[0])
        BassilySunMean(1.0).calibrate(number, 3, BUDGET, rounds)
        assert number > paper_users(rounds, 1.0, 1e-6)
        return number

    assert needed(10_000) / needed(100) == pytest.approx(10, rel=0.35)
    # One check for all rounds needs far fewer.
    ConcentratedMean(1.0, gate="deferred").calibrate(200, 3, BUDGET, rounds=10_000)


def test_paper_users():
    assert paper_users(100, 0.5, 1e-6) == pytest.approx(20 * math.sqrt(math.log(1e6)))


def test_a_session_answers_its_rounds_and_no_more():
    session = BassilySunMean(2.0).calibrate(5_000, 3, BUDGET, rounds=3).start(SeededNoise(0))
    x = crowd(n=5_000)
    for _ in range(3):
        answer = session.answer(x)
        assert np.abs(answer - x.mean(axis=0)).max() < 6 * session.noise_std
    with pytest.raises(InvalidInputError, match="all 3 rounds"):
        session.answer(x)
    statement = session.finish()
    assert {spend.name for spend in statement.spent} == {"rounds' own delta", "concentrated means"}
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(x)


def test_the_first_round_that_is_not_concentrated_ends_the_session():
    session = BassilySunMean(2.0).calibrate(5_000, 3, BUDGET, rounds=3).start(SeededNoise(0))
    session.answer(crowd(n=5_000))
    with pytest.raises(NotConcentratedError) as error:
        session.answer(crowd(n=5_000, spread=100.0))
    assert session.halted
    assert not any(character.isdigit() for character in str(error.value))
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(crowd(n=5_000))
    assert session.finish().certified


def test_noise_has_the_announced_scale():
    x = np.zeros((1_000, 2_000))
    release = BassilySunMean(1.0).release(x, epsilon=1.0, delta=1e-6, random_state=5)
    z = (np.var(release.value) / release.noise_std**2 - 1) / math.sqrt(2 / 2_000)
    assert abs(z) < norm.isf(5e-7)


def test_wild_values_say_nothing():
    for value in (np.nan, np.inf, 1e308, 5e-324):
        x = crowd()
        x[0] = value
        BassilySunMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=0)


@pytest.mark.parametrize("options", [{"radius": 0.0}, {"radius": 1.0, "agreement": 0.4}])
def test_bad_options(options):
    with pytest.raises(InvalidInputError):
        BassilySunMean(**options).release(crowd(), epsilon=1.0, delta=1e-6)


def test_nothing_left():
    for beside in (PureEvent("other", 1.0), FailureEvent("other", 1e-6)):
        with pytest.raises(InvalidInputError, match="leave no"):
            BassilySunMean(1.0).calibrate(1_000, 2, BUDGET, beside=(beside,))
    with pytest.raises(InvalidInputError, match="rounds"):
        BassilySunMean(1.0).calibrate(1_000, 2, BUDGET, rounds=0)
