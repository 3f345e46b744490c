import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

from userdp.errors import InvalidInputError
from userdp.means import AdaptiveClippedMean, ClippedMean
from userdp.means.adaptive_clipped import COUNT_RESOLUTION, count_units
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import GaussianEvent, PureEvent, delta_of

BUDGET = Budget(1.0, 1e-6)


def events_of(calibrated):
    return (*calibrated.beside, calibrated.event, *((calibrated.count,) if calibrated.count else ()))


def test_the_radius_goes_to_the_quantile_of_the_norms():
    x = np.random.default_rng(0).normal(size=(20_000, 3))
    norms = np.linalg.norm(x, axis=1)
    for quantile, start in [(0.5, 20.0), (0.9, 0.2)]:
        session = (
            AdaptiveClippedMean(start, quantile=quantile)
            .calibrate(20_000, 3, BUDGET, 200)
            .start(SeededNoise(0))
        )
        for _ in range(200):
            session.answer(x)
        assert session.radius == pytest.approx(np.quantile(norms, quantile), rel=0.15)


def test_one_round_is_plain_clipping():
    x = np.random.default_rng(0).normal(size=(500, 4))
    adaptive = AdaptiveClippedMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=3)
    plain = ClippedMean(2.0).release(x, epsilon=1.0, delta=1e-6, random_state=3)
    assert adaptive.noise_std[0] == pytest.approx(plain.noise_std[0], rel=1e-9)
    assert adaptive.value == pytest.approx(plain.value, abs=1e-9)


def test_warmup_adapts_a_single_round_and_reports_the_radius_it_found():
    x = np.random.default_rng(0).normal(size=(20_000, 3))
    release = AdaptiveClippedMean(100.0, warmup=60).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    assert 1 < release.radius < 3
    assert np.abs(release.value).max() < 0.05
    assert {spend.name for spend in release.privacy.spent} == {"clipped mean", "clipped count"}


@pytest.mark.parametrize("radius", [1e-90, 0.3, 1.0, 7.7e50])
def test_the_cost_does_not_depend_on_the_radius(radius):
    calibrated = AdaptiveClippedMean(1.0).calibrate(1_000, 5, BUDGET, 10)
    assert calibrated.lattice(radius).radius_units * 2 == calibrated.event.sensitivity


def test_sensitivities_are_attained(silent_noise):
    """A user crossing the ball moves the sum by 2 radii, one entering it the count by 1: both are needed."""
    n = 10
    calibrated = AdaptiveClippedMean(1.0).calibrate(n, 1, BUDGET, rounds=2)
    one, two = np.zeros((n, 1)), np.zeros((n, 1))
    one[0], two[0] = -100.0, 100.0
    moved = (calibrated.start(silent_noise).answer(two) - calibrated.start(silent_noise).answer(one))[0]
    in_units = moved * n / calibrated.lattice(1.0).step
    assert 0.999 * calibrated.event.sensitivity < in_units <= calibrated.event.sensitivity
    count, count_2 = (count_units(x, np.zeros(1), 1.0, 0.5) for x in (np.zeros((n, 1)), two))
    assert count - count_2 == COUNT_RESOLUTION == calibrated.count.sensitivity


def test_no_replacement_moves_the_count_by_more_than_one_user():
    x = np.random.default_rng(0).normal(size=(30, 2))
    counts = []
    for row in ([0, 0], [0.1, 1], [50, 0], [np.nan, 0], [np.inf, 1], [1e308, -1e308], [5e-324, 0]):
        y = x.copy()
        y[0] = row
        counts.append(count_units(y, np.zeros(2), 1.0, 0.7))
    assert max(counts) - min(counts) == COUNT_RESOLUTION


def test_null_users_do_not_pull_the_radius(silent_noise):
    x = np.full((10, 1), np.nan)
    session = AdaptiveClippedMean(3.0, quantile=0.3).calibrate(10, 1, BUDGET, 3).start(silent_noise)
    session.answer(x)
    session.answer(x)
    assert session.radius == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize(
    ("n", "rounds", "warmup"), [(100, 1, 0), (100, 50, 0), (5_000, 100, 0), (300, 1, 20)]
)
@pytest.mark.parametrize("beside", [(), (PureEvent("other", 0.3),)])
def test_the_whole_session_fits_the_budget_and_less_noise_does_not(n, rounds, warmup, beside):
    calibrated = AdaptiveClippedMean(1.0, warmup=warmup).calibrate(n, 3, BUDGET, rounds, beside)
    events = events_of(calibrated)
    assert delta_of(events, 1.0) <= 1e-6
    less = dataclasses.replace(calibrated.event, scale=0.9 * calibrated.event.scale)
    assert delta_of([less if e is calibrated.event else e for e in events], 1.0) > 1e-6


def test_count_noise_is_the_paper_s_where_that_is_cheap():
    many = AdaptiveClippedMean(1.0).calibrate(100_000, 3, BUDGET, 100).count
    assert many.scale == pytest.approx(100_000 / 20 * COUNT_RESOLUTION)
    few = AdaptiveClippedMean(1.0).calibrate(200, 3, BUDGET, 100)
    assert few.count.scale > 200 / 20 * COUNT_RESOLUTION
    assert few.count.mu**2 == pytest.approx(0.1 * (few.count.mu**2 + few.event.mu**2), rel=1e-3)
    given = AdaptiveClippedMean(1.0, count_noise=500.0).calibrate(200, 3, BUDGET, 100)
    assert given.count == GaussianEvent(
        "clipped count", COUNT_RESOLUTION, 500.0 * COUNT_RESOLUTION, rounds=99
    )


def test_the_radius_does_not_walk_off_on_noisy_counts():
    """500 users, 400 rounds, epsilon 0.1: a share's noise is 4.6, and at the paper's rate the radius is anything."""
    n, T, budget = 500, 400, Budget(0.1, 1e-6)
    x = np.random.default_rng(0).normal(size=(n, 1))

    def last_radii(**options):
        calibrated = AdaptiveClippedMean(1.0, **options).calibrate(n, 1, budget, T)
        sessions = [calibrated.start(SeededNoise(seed)) for seed in range(10)]
        for session in sessions:
            for _ in range(T):
                session.answer(x)
        return np.log([session.radius for session in sessions])

    assert last_radii(learning_rate=0.2).std() > 4
    assert last_radii().std() < 1


def test_the_learning_rate_is_the_paper_s_where_counts_are_clear():
    assert AdaptiveClippedMean(1.0).calibrate(10, 3, BUDGET).learning_rate == 0.2
    clear = AdaptiveClippedMean(1.0).calibrate(100_000, 3, BUDGET, 100)
    assert clear.learning_rate == pytest.approx(0.2 / (1 + 1 / 400))
    noisy = AdaptiveClippedMean(1.0, count_noise=500.0).calibrate(250, 3, BUDGET, 100)
    assert noisy.learning_rate == pytest.approx(0.2 / 5)
    given = AdaptiveClippedMean(1.0, learning_rate=0.3, count_noise=500.0).calibrate(250, 3, BUDGET, 100)
    assert given.learning_rate == 0.3


def test_noise_has_the_announced_scale():
    n, d = 1_000, 3_000
    calibrated = AdaptiveClippedMean(3.0).calibrate(n, d, BUDGET, rounds=2)
    session = calibrated.start(SeededNoise(1))
    for _ in range(2):
        answer = session.answer(np.zeros((n, d)))
        z = (np.var(answer) / session.noise_std**2 - 1) / math.sqrt(2 / d)
        assert abs(z) < norm.isf(5e-7)


def test_rounds_and_the_end_of_a_session():
    session = AdaptiveClippedMean(1.0).calibrate(10, 2, BUDGET, rounds=2).start(SeededNoise(0))
    x = np.zeros((10, 2))
    session.answer(x)
    session.answer(x)
    with pytest.raises(InvalidInputError, match="all 2 rounds"):
        session.answer(x)
    session.finish()
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(x)


def test_wild_values_say_nothing():
    for value in (np.nan, np.inf, 1e308, -1e308, 5e-324):
        x = np.zeros((100, 2))
        x[0] = value
        AdaptiveClippedMean(1.0, warmup=2).release(x, epsilon=1.0, delta=1e-6, random_state=0)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"radius": 0.0}, "radius"),
        ({"radius": 1.0, "quantile": 0.0}, "quantile"),
        ({"radius": 1.0, "quantile": 1.0}, "quantile"),
        ({"radius": 1.0, "learning_rate": 0.0}, "learning_rate"),
        ({"radius": 1.0, "learning_rate": math.inf}, "learning_rate"),
        ({"radius": 1.0, "count_noise": 0.0}, "count_noise"),
        ({"radius": 1.0, "count_noise": 1.0, "warmup": 50}, "larger count_noise"),
        ({"radius": 1.0, "warmup": -1}, "warmup"),
        ({"radius": 1.0, "centre": [0.0]}, "centre"),
    ],
)
def test_bad_options(options, word):
    with pytest.raises(InvalidInputError, match=word):
        AdaptiveClippedMean(**options).release(np.zeros((100, 2)), epsilon=1.0, delta=1e-6)


def test_nothing_left():
    with pytest.raises(InvalidInputError, match="leave no budget"):
        AdaptiveClippedMean(1.0).calibrate(100, 2, BUDGET, beside=(PureEvent("other", 1.0),))


@pytest.mark.parametrize(("rounds", "warmup"), [(1, 0), (1, 3), (4, 0), (3, 2)])
def test_every_count_and_answer_has_the_noise_it_pays_for(silent_noise, rounds, warmup):
    calibrated = AdaptiveClippedMean(1.0, warmup=warmup).calibrate(100, 2, Budget(1.0, 1e-6), rounds)
    session = calibrated.start(silent_noise)
    for _ in range(rounds):
        session.answer(np.zeros((100, 2)))
    session.finish()
    answer = [("gaussian", calibrated.event.scale)]
    count = [("gaussian", calibrated.count.scale)] if calibrated.count else []
    assert silent_noise.asked == count * warmup + (answer + count) * (rounds - 1) + answer
    assert (calibrated.count.rounds if calibrated.count else 0) == warmup + rounds - 1
