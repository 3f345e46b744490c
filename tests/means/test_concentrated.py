import contextlib
import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from tests.means.neighbours import by_hand
from userdp.errors import InvalidInputError, NotConcentratedError, PrivacyWarning, TooFewUsersError
from userdp.means import ConcentratedMean, certified
from userdp.means.friends import concentration_index, friend_counts
from userdp.means.sensitivity import mean_sensitivity
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import GaussianEvent, PureEvent, delta_of
from userdp.privacy.calibration import INDEX_RESOLUTION

GATES = ["deferred", "one-sided", "gaussian"]
BUDGET = Budget(1.0, 1e-6)


def crowd(n=1_000, d=3, centre=50.0, spread=0.1, seed=0):
    return np.random.default_rng(seed).normal(centre, spread, size=(n, d))


@pytest.mark.parametrize("gate", GATES)
def test_releases_the_mean_of_concentrated_data_wherever_it_is(gate):
    for centre in (0.0, -7.0, 1e6, 1e9):
        x = crowd(centre=centre)
        release = ConcentratedMean(2.0, gate=gate).release(x, epsilon=1.0, delta=1e-6, random_state=1)
        assert np.abs(release.value - x.mean(axis=0)).max() < 6 * release.noise_std[0]
        assert release.noise_std[0] < 0.2
        assert release.privacy.certified
        assert release.privacy.seeded
        assert not release.halted


@pytest.mark.parametrize("gate", GATES)
def test_noise_has_the_announced_scale(gate):
    """Rejects a scale 5% off, at a false alarm rate of 1e-6."""
    x = np.zeros((1_000, 2_000))
    release = ConcentratedMean(1.0, gate=gate).release(x, epsilon=1.0, delta=1e-6, random_state=5)
    z = (np.var(release.value) / release.noise_std[0] ** 2 - 1) / math.sqrt(2 / 2_000)
    assert abs(z) < norm.isf(5e-7)
    variance_5_percent_off = abs(1.05**2 - 1) / math.sqrt(2 / 2_000)
    assert variance_5_percent_off > 3


@pytest.mark.parametrize("gate", GATES)
def test_nothing_is_released_of_scattered_data(gate):
    x = crowd(spread=100.0)
    with pytest.raises(NotConcentratedError) as error:
        ConcentratedMean(1.0, gate=gate).release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert not any(character.isdigit() for character in str(error.value))


@pytest.mark.parametrize("gate", GATES)
def test_outliers_and_nulls_do_not_move_the_mean(gate):
    x = crowd(n=4_000)
    x[:40] = 1e9
    x[40:60] = np.nan
    x[60:70] = np.inf
    mean = ConcentratedMean(2.0, gate=gate, agreement=0.97)
    release = mean.release(x, epsilon=1.0, delta=1e-6, random_state=1)
    assert np.abs(release.value - 50.0).max() < 6 * release.noise_std[0] + 0.05


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("rounds", [1, 5])
def test_a_session_answers_its_rounds_and_no_more(gate, rounds):
    calibrated = ConcentratedMean(2.0, gate=gate).calibrate(3_000, 3, BUDGET, rounds)
    session = calibrated.start(SeededNoise(0))
    x = crowd(n=3_000)
    for _ in range(rounds):
        session.answer(x)
    with pytest.raises(InvalidInputError, match=f"all {rounds} rounds"):
        session.answer(x)
    statement = session.finish()
    assert statement.epsilon == 1.0
    assert {spend.name for spend in statement.spent} == {"concentration gate", "gate passes in error", "mean"}


def test_rounds_cost_sqrt_of_their_number():
    one, many = (
        certified.calibrate(1.0, 5_000, 2, BUDGET, gate="deferred", rounds=T).noise_std(4_900)
        for T in (1, 100)
    )
    assert many / one == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize("gate", GATES)
def test_the_whole_session_fits_the_budget(gate):
    for n, rounds, beside in [(500, 1, ()), (2_000, 3, (PureEvent("radius", 0.1),)), (50_000, 1, ())]:
        calibrated = certified.calibrate(1.0, n, 10, BUDGET, gate=gate, rounds=rounds, beside=beside)
        event = calibrated.mean_event(int(0.97 * n))
        assert delta_of((*beside, *calibrated.setting.events, event), 1.0) <= 1e-6
        halved = dataclasses.replace(event, scale=event.scale * 0.9)
        assert delta_of((*beside, *calibrated.setting.events, halved), 1.0) > 1e-6


@pytest.mark.parametrize("index", [70, 85, 100])
def test_answers_of_neighbours_stay_within_the_sensitivity_in_lattice_units(silent_noise, index):
    """The whole pipeline with the noise silenced, on neighbours of high enough index."""
    n, budget = 100, Budget(9.0, 1e-2)
    rng = np.random.default_rng(index)
    used = 0.0
    for trial in range(60):
        x = rng.normal(size=(n, 2)) * 0.1
        x[: rng.integers(0, n - index + 1)] += rng.normal(size=2) * 0.6
        y = x.copy()
        y[-1] = rng.normal(size=2) * rng.choice([0.3, 1.0, 5.0]) if trial % 7 else np.nan
        calibrated = certified.calibrate(1.0, n, 2, budget, gate="gaussian")
        units = [calibrated.lattice.round(v) for v in (x, y)]
        counts = [friend_counts(u, calibrated.lattice.radius_units) for u in units]
        if max(map(concentration_index, counts)) < index:
            continue
        rounds = certified._Rounds(calibrated, silent_noise)
        one, two = (rounds.noisy_mean(u, c, index) for u, c in zip(units, counts, strict=True))
        moved = np.linalg.norm(one - two) / calibrated.lattice.answer_step
        bound = calibrated.mean_event(index).sensitivity
        assert moved <= bound * (1 + 1e-9)
        used = max(used, moved / bound)
    assert used > 0.1


def test_vectors_are_bit_for_bit_functions_of_their_user(silent_noise):
    """Any order of the users gives the same bits."""
    x = crowd(n=500, d=4)
    calibrated = certified.calibrate(1.0, 500, 4, Budget(4.0, 1e-3), gate="gaussian")
    answers = set()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(500)
        answers.add(calibrated.start(silent_noise).answer(x[order]).tobytes())
    assert len(answers) == 1


def test_answers_lie_on_the_public_lattice():
    n, d = 1_000, 3
    calibrated = certified.calibrate(2.0, n, d, BUDGET, gate="gaussian")
    for seed in range(20):
        answer = calibrated.start(SeededNoise(seed)).answer(crowd(n, d, centre=3.0, seed=seed))
        units = answer / calibrated.lattice.answer_step
        assert (units == np.rint(units)).all()


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("spread", [0.1, 100.0])
def test_nothing_is_answered_after_the_end(gate, spread):
    session = ConcentratedMean(2.0, gate=gate).calibrate(3_000, 3, BUDGET, rounds=5).start(SeededNoise(0))
    with contextlib.suppress(NotConcentratedError):
        session.answer(crowd(n=3_000, spread=spread))
        session.finish()
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(crowd(n=3_000))


def test_deferred_gate_judges_the_worst_round():
    calibrated = certified.calibrate(2.0, 1_000, 3, BUDGET, gate="deferred", rounds=3)
    session = calibrated.start(SeededNoise(0))
    for x in (crowd(), crowd(spread=50.0), crowd()):
        assert np.isfinite(session.answer(x)).all()
    with pytest.raises(NotConcentratedError):
        session.finish()


def test_deferred_answers_are_not_zeroed_below_the_index(silent_noise):
    """At h = H - 1 the neighbour may have h' = H: the answer must stay close to its neighbour's."""
    calibrated = certified.calibrate(2.0, 1_000, 1, BUDGET, gate="deferred")
    index = calibrated.setting.index
    x = np.full((1_000, 1), 5.0)
    x[index - 1 :] = 1e6 * np.arange(1, 1_000 - index + 2)[:, None]
    assert calibrated.start(silent_noise).answer(x)[0] == pytest.approx(5.0)


def test_deferred_gate_threshold_is_used(silent_noise):
    """With silent noise the gate lets pass exactly the indices at its threshold or above."""
    calibrated = certified.calibrate(2.0, 1_000, 1, BUDGET, gate="deferred")
    least = -(-calibrated.setting.threshold // INDEX_RESOLUTION)
    for index in (least, least - 1):
        x = np.zeros((1_000, 1))
        x[index:] = 1e6 * np.arange(1, 1_000 - index + 1)[:, None]
        session = calibrated.start(silent_noise)
        session.answer(x)
        if index == least:
            session.finish()
        else:
            with pytest.raises(NotConcentratedError):
                session.finish()


def test_gaussian_gate_adapts_its_noise_to_the_index():
    tight, loose = crowd(n=5_000), crowd(n=5_000)
    loose[:500] = np.arange(500)[:, None] * 1e3 + 1e6
    mean = ConcentratedMean(2.0, gate="gaussian")
    first, second = (
        mean.release(x, epsilon=1.0, delta=1e-6, random_state=0).noise_std[0] for x in (tight, loose)
    )
    assert second / first == pytest.approx(
        mean_sensitivity(4_460, 5_000, 1.0) / mean_sensitivity(4_950, 5_000, 1.0), rel=0.05
    )


def test_scaling_the_data_scales_the_release():
    x = crowd()
    small, large = (
        ConcentratedMean(2.0 * k).release(x * k, epsilon=1.0, delta=1e-6, random_state=3)
        for k in (1.0, 1024.0)
    )
    assert (large.value == small.value * 1024).all()


@pytest.mark.parametrize("gate", GATES)
def test_too_few_users_says_how_many_would_do(gate):
    with pytest.raises(TooFewUsersError, match=r"at least \d+") as error:
        ConcentratedMean(1.0, gate=gate).release(crowd(n=30), epsilon=1.0, delta=1e-6)
    needed = int(str(error.value).split("at least ")[1].split(",")[0])
    ConcentratedMean(1.0, gate=gate).calibrate(needed, 3, BUDGET)
    with pytest.raises(TooFewUsersError):
        ConcentratedMean(1.0, gate=gate).calibrate(int(needed * 0.9), 3, BUDGET)


@pytest.mark.parametrize(
    "options",
    [
        {"radius": 0.0},
        {"radius": math.nan},
        {"radius": 1.0, "agreement": 0.5},
        {"radius": 1.0, "agreement": 1.5},
        {"radius": 1.0, "gate": "open"},
        {"radius": 1.0, "calibration": "guess"},
    ],
)
def test_bad_options(options):
    with pytest.raises(InvalidInputError):
        ConcentratedMean(**options).release(crowd(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "vectors", [np.zeros(5), np.zeros((0, 3)), np.zeros((5, 0)), np.array([["a"]]), np.zeros((2, 2, 2))]
)
def test_bad_vectors(vectors):
    with pytest.raises(InvalidInputError, match=r"vectors must"):
        ConcentratedMean(1.0).release(vectors, epsilon=1.0, delta=1e-6)


def test_queries_must_have_the_calibrated_shape():
    session = ConcentratedMean(1.0).calibrate(1_000, 3, BUDGET).start(SeededNoise(0))
    with pytest.raises(InvalidInputError, match="calibrated for"):
        session.answer(crowd(n=999))


def test_bad_rounds():
    with pytest.raises(InvalidInputError, match="rounds"):
        ConcentratedMean(1.0).calibrate(1_000, 3, BUDGET, rounds=0)


def test_large_delta_warns():
    with pytest.warns(PrivacyWarning, match="1 / 1000 users"):
        ConcentratedMean(2.0).release(crowd(), epsilon=1.0, delta=1e-3, random_state=0)


def test_values_never_show_in_errors_or_warnings():
    """Neighbours that differ in one wild user run through the same code without a word."""
    wild = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324)
    for value in wild:
        x = crowd()
        x[0] = value
        ConcentratedMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=0)


def test_mean_costs_the_same_at_every_index():
    calibrated = certified.calibrate(1.0, 2_000, 5, BUDGET, gate="gaussian", rounds=4)
    costs = {round(calibrated.mean_event(index).mu, 12) for index in range(1_100, 2_001, 100)}
    assert len(costs) == 1
    assert isinstance(calibrated.mean_event(1_500), GaussianEvent)


def test_refusals_say_the_same_to_all_neighbours():
    """Small n is refused before the data is looked at."""
    messages = set()
    for pair in [pair for pair in by_hand() if len(pair.one) == 12]:
        for x in (pair.one, pair.other):
            with pytest.raises(TooFewUsersError) as error:
                certified.calibrate(1.0, len(x), x.shape[1], Budget(0.9, 1e-3), gate="gaussian")
            messages.add(str(error.value))
    assert len(messages) == 1


@pytest.mark.parametrize("gate", GATES)
def test_an_answer_is_the_weighted_mean_of_the_definition(gate, silent_noise):
    """Users on the whole ramp: weights clip((f_j - lo)/(H - 1 - lo), 0, 1) at radius r, in exact fractions."""
    n, radius = 60, 1.0
    calibrated = certified.calibrate(radius, n, 1, Budget(9.5, 1e-1), gate=gate, agreement=0.8)
    line = np.concatenate([np.linspace(-0.45, 0.45, 50), np.linspace(0.56, 1.2, 8), [5.0, np.nan]])
    session = calibrated.start(silent_noise)
    answer = session.answer(line[:, None])
    units = [None if np.isnan(x) else int(np.rint(x / calibrated.lattice.step)) for x in line]
    limit = calibrated.lattice.radius_units
    friends = [0 if a is None else sum(b is not None and abs(a - b) <= limit for b in units) for a in units]
    lo, hi = 30, session._index - 1
    weights = [Fraction(min(max(f - lo, 0), hi - lo), hi - lo) for f in friends]
    assert len(set(weights)) > 4  # the ramp is used
    exact = sum(w * u for w, u in zip(weights, units, strict=True) if w) / sum(weights)
    step = calibrated.lattice.answer_step
    assert abs(answer[0] / step - float(exact * 2**calibrated.lattice.answer_bits)) <= 0.5 + 1e-6


@pytest.mark.parametrize("drawn", [-8, -3, 0, 2])
def test_the_gaussian_gate_s_noise_follows_the_noisy_index_alone(drawn, scripted_noise):
    n = 400
    calibrated = certified.calibrate(1.0, n, 1, Budget(4.0, 1e-3), gate="gaussian")
    noise = scripted_noise(drawn * INDEX_RESOLUTION, 0)
    session = calibrated.start(noise)
    x = np.zeros((n, 1))
    x[:20] = 9.0
    session.answer(x)
    index = min(n, calibrated.setting.index((n - 20 + drawn) * INDEX_RESOLUTION))
    assert session.noise_std == calibrated.noise_std(index)
    assert noise.asked == [
        ("gaussian", calibrated.setting.scale),
        ("gaussian", calibrated.mean_event(index).scale),
    ]
