import math

import numpy as np
import pytest
from scipy.stats import norm

from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means import BassilySunMean, ConcentratedMean
from userdp.means.bassily_sun import halting_bound, paper_users
from userdp.means.friends import concentration_index, friend_counts
from userdp.means.sensitivity import ramp_start
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import FailureEvent, PureEvent, delta_of
from userdp.privacy.calibration import INDEX_RESOLUTION

BUDGET = Budget(1.0, 1e-6)


def crowd(n=2_000, d=3, centre=50.0, spread=0.1):
    return np.random.default_rng(0).normal(centre, spread, size=(n, d))


@pytest.mark.parametrize("centre", [0.0, -7.0, 1e6])
def test_releases_the_mean_of_concentrated_data_wherever_it_is(centre):
    x = crowd(centre=centre)
    release = BassilySunMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert np.abs(release.value - x.mean(axis=0)).max() < 6 * release.noise_std[0]
    assert release.noise_std[0] < 0.05
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


def users_needed(rounds):
    with pytest.raises(TooFewUsersError, match=r"at least \d+") as error:
        BassilySunMean(1.0).calibrate(10, 3, BUDGET, rounds)
    return int(str(error.value).split("at least ")[1].split(",")[0])


def test_users_needed_grow_like_the_root_of_the_rounds():
    def needed(rounds):
        number = users_needed(rounds)
        BassilySunMean(1.0).calibrate(number, 3, BUDGET, rounds)
        assert number > paper_users(rounds, 1.0, 1e-6)
        return number

    assert 10 < needed(10_000) / needed(100) < 15  # the root, and a logarithm of the rounds
    # One check for all rounds needs far fewer.
    ConcentratedMean(1.0, gate="deferred").calibrate(200, 3, BUDGET, rounds=10_000)


def test_users_that_agree_get_all_answers_half_of_the_time_with_the_number_that_is_said_to_do():
    rounds = 10
    n, got_through = users_needed(rounds), 0
    calibrated = BassilySunMean(1.0).calibrate(n, 3, BUDGET, rounds)
    x = np.ones((n, 3))
    for seed in range(40):
        session = calibrated.start(SeededNoise(seed))
        try:
            for _ in range(rounds):
                session.answer(x)
            got_through += 1
        except NotConcentratedError:
            pass
    assert got_through > 9  # fewer in 3 of 10,000 times at 1/2


@pytest.mark.parametrize("agreement", [1.0, 0.9])
def test_a_round_halts_where_its_noise_uses_up_the_slack_and_not_before(scripted_noise, agreement):
    n, rounds = 900, 3
    calibrated = BassilySunMean(1.0, agreement).calibrate(n, 1, BUDGET, rounds)
    gate, index = calibrated.mean.setting, int(agreement * n)
    x = np.zeros((n, 1))
    x[index:] = 50.0
    slack = INDEX_RESOLUTION * (index - ramp_start(n) - 2) - gate.margin
    calibrated.start(scripted_noise(-slack, 0)).answer(x)
    with pytest.raises(NotConcentratedError):
        calibrated.start(scripted_noise(-slack - 1, 0)).answer(x)
    exact = rounds * norm.sf(slack / gate.scale)
    assert halting_bound(gate, n, index, rounds) == pytest.approx(exact, rel=1e-6)
    assert halting_bound(gate, n, ramp_start(n) + 2, rounds) == 1  # the margin alone is more


def test_answers_of_neighbours_stay_within_what_a_round_pays_for(scripted_noise):
    """Replacing a user moves the noisy index by one at most; at the same noisy index, the answer by the sensitivity."""
    n, rng, used = 150, np.random.default_rng(0), 0.0
    calibrated = BassilySunMean(1.0).calibrate(n, 2, Budget(9.0, 1e-2), rounds=2)
    lattice, gate = calibrated.mean.lattice, calibrated.mean.setting
    for trial in range(60):
        one = rng.normal(size=(n, 2)) * 0.1
        one[: rng.integers(0, 20)] += rng.normal(size=2) * 0.6
        other = one.copy()
        other[-1] = rng.normal(size=2) * rng.choice([0.3, 1.0, 5.0]) if trial % 7 else np.nan
        found = [
            concentration_index(friend_counts(lattice.round(x), lattice.radius_units)) for x in (one, other)
        ]
        assert abs(found[0] - found[1]) <= 1
        answers, asked = [], []
        for x, index in zip((one, other), found, strict=True):
            noise = scripted_noise(*[INDEX_RESOLUTION * (found[0] - index), 0, 0] * 2)
            session = calibrated.start(noise)
            answers.append([session.answer(x), session.answer(x)])
            asked.append(noise.asked)
        assert asked[0] == asked[1]  # the noise does not follow the user
        index = min(gate.index(INDEX_RESOLUTION * found[0]), n)
        bound = calibrated.mean.mean_event(index).sensitivity * lattice.answer_step
        moved = np.linalg.norm(np.subtract(*answers), axis=1)
        assert moved.max() <= bound * (1 + 1e-9)
        used = max(used, moved.max() / bound)
    assert used > 0.1


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
    z = (np.var(release.value) / release.noise_std[0] ** 2 - 1) / math.sqrt(2 / 2_000)
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
