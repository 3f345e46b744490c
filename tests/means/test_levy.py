import itertools
import math

import numpy as np
import pytest
from scipy.linalg import hadamard as dense_hadamard

from userdp.errors import InvalidInputError
from userdp.means import LevyMean
from userdp.means.levy import coordinate_radius, hadamard
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget
from userdp.privacy.accounting import PureEvent, delta_of

BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize("d", [1, 2, 5, 16, 30])
def test_releases_the_mean_of_concentrated_data_wherever_it_is(d):
    for centre in (0.0, -7.0, 20.0):
        x = np.random.default_rng(d).normal(centre, 0.05 / math.sqrt(d), size=(5_000, d))
        mean = LevyMean(radius=0.3, bound=1_000.0)
        release = mean.release(x, epsilon=1.0, delta=1e-6, random_state=1)
        assert np.abs(release.value - x.mean(axis=0)).max() < 8 * release.noise_std[0]
        assert release.noise_std[0] < 0.05
        assert release.privacy.certified
        assert not release.halted


def test_hadamard_is_the_matrix_product():
    x = np.random.default_rng(0).integers(-(2**40), 2**40, size=(3, 8))
    assert (hadamard(x) == x @ dense_hadamard(8)).all()
    assert (hadamard(x.astype(float)) == x @ dense_hadamard(8)).all()


@pytest.mark.parametrize("d", [2, 16, 64])
def test_rotated_coordinates_stay_within_their_radius(d):
    rng = np.random.default_rng(0)
    n = 2_000
    for v in (np.eye(1, d), np.ones((1, d)) / math.sqrt(d), rng.normal(size=(1, d)) / math.sqrt(d)):
        signs = rng.choice([-1.0, 1.0], size=(n, d))
        rotated = hadamard(v / np.linalg.norm(v) * signs) / math.sqrt(d)
        assert np.abs(rotated).max() <= coordinate_radius(1.0, n, d, failure=1e-6) * (1 + 1e-12)
    assert coordinate_radius(1.0, n, 1, 0.01) == 1.0
    assert coordinate_radius(3.0, n, 1_024, 0.01) < 10 * 3.0 * math.sqrt(math.log(1_024 * n / 0.01) / 1_024)


def test_one_dimension_spends_epsilon_as_the_paper_does():
    """Half on the range, half on Laplace noise of scale 8 tau/(n epsilon), no delta."""
    n, tau = 400, 0.5
    calibrated = LevyMean(tau, bound=10.0).calibrate(n, 1, BUDGET)
    assert calibrated.parts.epsilon == pytest.approx(0.5)
    scale = calibrated.laplace_scale * calibrated.lattice.step / n
    assert scale == pytest.approx(8 * tau / (n * 1.0), rel=1e-3)
    assert isinstance(calibrated.parts.events[0], PureEvent)


def test_high_dimension_gives_a_coordinate_more_than_the_paper_s_composition():
    d = 256
    ours = 2 * LevyMean(1.0, bound=1.0).calibrate(1_000, d, BUDGET).parts.epsilon
    assert ours > 2 / math.sqrt(8 * d * math.log(1e6))


def test_sensitivity_of_the_clipped_sum_is_attained(silent_noise):
    """A user that crosses the interval moves the sum by 4 tau': a tenth less noise would not be enough."""
    n = 9
    calibrated = LevyMean(1.0, bound=50.0).calibrate(n, 1, Budget(5.0, 1e-6))
    session = calibrated.start(silent_noise)
    rest = np.full(n - 1, 10 * calibrated.half_bin + 1)
    sums = [
        session._coordinate(np.zeros(n), np.concatenate([[far], rest]))
        for far in (-(10**7), 10**7, 10 * calibrated.half_bin)
    ]
    middles = {middle for middle, _ in sums}
    moved = max(abs(a - b) for (_, a), (_, b) in itertools.combinations(sums, 2))
    assert len(middles) == 1
    assert moved == 4 * calibrated.half_bin
    assert calibrated.laplace_scale == pytest.approx(moved / calibrated.parts.epsilon)


def test_neighbours_never_move_a_coordinate_s_sum_by_more(silent_noise):
    n, rng = 12, np.random.default_rng(0)
    calibrated = LevyMean(1.0, bound=50.0).calibrate(n, 1, Budget(5.0, 1e-6))
    session = calibrated.start(silent_noise)
    t = calibrated.half_bin
    for _ in range(300):
        y = rng.integers(-5 * t, 5 * t, n)
        z, null = y.copy(), np.zeros(n)
        z[0] = rng.choice([y[1], 10 * t, -10 * t, 0])
        if rng.random() < 0.3:
            null[0] = np.nan
        (s, a), (s_2, b) = session._coordinate(np.zeros(n), y), session._coordinate(null, z)
        if s == s_2:
            assert abs(a - b) <= 4 * t


def test_the_range_is_found_in_the_right_bin():
    calibrated = LevyMean(1.0, bound=100.0).calibrate(2_000, 1, BUDGET)
    session = calibrated.start(SeededNoise(0))
    t = calibrated.half_bin
    y = np.random.default_rng(0).integers(40 * t, 41 * t, 2_000)
    middle, _ = session._coordinate(np.zeros(2_000), y)
    assert abs(middle - 40.5 * t) <= 1.5 * t
    edges = calibrated.upper_edges
    assert (np.diff(edges) == 2 * t).all()
    assert edges[-1] * calibrated.lattice.step >= 100
    assert (edges[0] - 2 * t) * calibrated.lattice.step <= -100


@pytest.mark.parametrize(("d", "rounds"), [(1, 1), (3, 1), (40, 1), (8, 20)])
@pytest.mark.parametrize("beside", [(), (PureEvent("other", 0.3),)])
def test_the_whole_session_fits_the_budget(d, rounds, beside):
    calibrated = LevyMean(1.0, bound=10.0).calibrate(100, d, BUDGET, rounds, beside)
    assert calibrated.parts.count == 2 * calibrated.lattice.dimension * rounds
    assert delta_of((*beside, *calibrated.parts.events), 1.0) <= 1e-6


def test_noise_has_the_announced_scale():
    n, d = 500, 64
    calibrated = LevyMean(1.0, bound=2.0).calibrate(n, d, BUDGET, rounds=40)
    session = calibrated.start(SeededNoise(0))
    errors = np.concatenate([session.answer(np.zeros((n, d))) for _ in range(40)])
    middle = np.abs(errors) < 20 * session.noise_std  # a wrong bin is an error of the range, not of the noise
    assert middle.mean() > 0.9
    session = LevyMean(1.0, bound=1.0).calibrate(50_000, 1, BUDGET, rounds=300).start(SeededNoise(0))
    draws = np.concatenate([session.answer(np.zeros((50_000, 1))) for _ in range(300)])
    # Laplace: the variance of the squared draws is 5 times their squared mean.
    z = ((draws**2).mean() / session.noise_std**2 - 1) / math.sqrt(5 / 300)
    assert abs(z) < 4.9


def test_scale_asked_of_the_noise(silent_noise):
    calibrated = LevyMean(1.0, bound=4.0).calibrate(20, 2, BUDGET)
    calibrated.start(silent_noise).answer(np.zeros((20, 2)))
    asked = set(silent_noise.asked)
    assert {law for law, _ in asked} == {"geometric", "laplace"}
    scales = dict(asked)
    assert scales["geometric"] == pytest.approx(2 / calibrated.parts.epsilon)
    assert scales["laplace"] == pytest.approx(4 * calibrated.half_bin / calibrated.parts.epsilon)
    assert len(silent_noise.asked) == 4


def test_outliers_nulls_and_wild_values():
    x = np.random.default_rng(0).normal(3.0, 0.05, size=(4_000, 3))
    for i, value in enumerate((np.nan, np.inf, 1e308, -1e308, 5e-324, 1e9)):
        x[i] = value
    release = LevyMean(0.5, bound=100.0).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.abs(release.value - 3).max() < 0.2


def test_a_session_ends():
    session = LevyMean(1.0, bound=2.0).calibrate(10, 2, BUDGET, rounds=2).start(SeededNoise(0))
    x = np.zeros((10, 2))
    session.answer(x)
    session.answer(x)
    with pytest.raises(InvalidInputError, match="all 2 rounds"):
        session.answer(x)
    session.finish()
    with pytest.raises(InvalidInputError, match="session is over"):
        session.answer(x)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"radius": 0.0, "bound": 1.0}, "radius"),
        ({"radius": 1.0, "bound": 0.5}, "bound"),
        ({"radius": 1.0, "bound": math.inf}, "bound"),
        ({"radius": 1.0, "bound": math.nan}, "bound"),
        ({"radius": 1.0, "bound": 1e9}, "bins"),
        ({"radius": 1.0, "bound": 1.0, "failure": 0.0}, "failure"),
    ],
)
def test_bad_options(options, word):
    with pytest.raises(InvalidInputError, match=word):
        LevyMean(**options).release(np.zeros((100, 2)), epsilon=1.0, delta=1e-6)


def test_nothing_left():
    with pytest.raises(InvalidInputError, match="leave no budget"):
        LevyMean(1.0, bound=1.0).calibrate(100, 2, BUDGET, beside=(PureEvent("other", 1.0),))
