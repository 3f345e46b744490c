import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm

import userdp
from userdp.data import Users
from userdp.errors import InvalidInputError
from userdp.means import AdaptiveClippedMean, ClippedMean, ConcentratedMean, FriendlyCoreMean, LevyMean
from userdp.means.clipped import clip_to_lattice_ball
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import SeededNoise
from userdp.privacy import Budget, mu_from_budget
from userdp.privacy.accounting import PureEvent

anything = st.floats(allow_nan=True, allow_infinity=True)


@given(hnp.arrays(float, st.tuples(st.integers(1, 5), st.just(3)), elements=anything))
def test_clipped_users_never_leave_the_ball(x):
    lattice = Lattice.fine_enough(2.0, 5, 3)
    units = clip_to_lattice_ball(x, np.array([1.0, -1.0, 0.0]), lattice)
    for row in units.tolist():
        assert sum(value * value for value in row) <= lattice.radius_units**2


def test_a_null_user_or_one_at_the_centre_causes_no_warning():
    lattice = Lattice.fine_enough(2.0, 3, 1)
    with np.errstate(all="raise"):
        clip_to_lattice_ball(np.array([[np.nan], [0.0], [5e-324]]), np.zeros(1), lattice)


def test_no_rounds():
    with pytest.raises(InvalidInputError, match="rounds"):
        ClippedMean(1.0).calibrate(10, 1, Budget(1.0, 1e-6), rounds=0)


def test_vectors_inside_the_ball_are_kept_and_outside_scaled():
    lattice = Lattice.fine_enough(5.0, 3, 2)
    x = np.array([[1.0, 2.0], [30.0, 40.0], [np.nan, 0.0]])
    clipped = clip_to_lattice_ball(x, np.zeros(2), lattice) * lattice.step
    assert clipped[0] == pytest.approx([1.0, 2.0], abs=lattice.step)
    assert clipped[1] == pytest.approx([3.0, 4.0], abs=2 * lattice.step)
    assert clipped[2].tolist() == [0.0, 0.0]


def test_sensitivity_is_attained(silent_noise):
    """A user that crosses the ball moves the sum by 2 radii: a tenth less noise would not be enough."""
    n, budget = 10, Budget(1.0, 1e-6)
    calibrated = ClippedMean(1.0).calibrate(n, 1, budget)
    one, two = np.zeros((n, 1)), np.zeros((n, 1))
    one[0], two[0] = -100.0, 100.0
    moved = (calibrated.start(silent_noise).answer(two) - calibrated.start(silent_noise).answer(one))[0]
    in_units = moved * n / calibrated.lattice.step
    assert 0.999 * calibrated.event.sensitivity < in_units <= calibrated.event.sensitivity


def test_noise_is_that_of_the_gaussian_mechanism():
    n, d = 1_000, 4_000
    release = ClippedMean(3.0).release(np.zeros((n, d)), epsilon=1.0, delta=1e-6, random_state=0)
    assert release.noise_std[0] == pytest.approx(2 * 3.0 / n / mu_from_budget(1.0, 1e-6), rel=1e-6)
    z = (np.var(release.value) / release.noise_std[0] ** 2 - 1) / np.sqrt(2 / d)
    assert abs(z) < norm.isf(5e-7)


def test_centre_and_budget_beside():
    x = np.full((2_000, 2), 100.0)
    release = ClippedMean(1.0, centre=[100.0, 100.0]).release(x, epsilon=1.0, delta=1e-6, random_state=0)
    assert np.abs(release.value - 100).max() < 0.05
    with_other = ClippedMean(1.0).calibrate(100, 2, Budget(1.0, 1e-6), beside=(PureEvent("other", 0.5),))
    alone = ClippedMean(1.0).calibrate(100, 2, Budget(1.0, 1e-6))
    assert with_other.event.scale > alone.event.scale
    assert with_other.start(SeededNoise(0)).finish().certified
    with pytest.raises(InvalidInputError, match="leave no budget"):
        ClippedMean(1.0).calibrate(100, 2, Budget(1.0, 1e-6), beside=(PureEvent("other", 1.0),))


@pytest.mark.parametrize("centre", [[0.0], [0.0, np.nan], [[0.0, 0.0]], "a", ["a", "b"], [[0.0], [0.0, 1.0]]])
@pytest.mark.parametrize("mean", [ClippedMean, AdaptiveClippedMean])
def test_bad_centre(mean, centre):
    with pytest.raises(InvalidInputError, match="centre must be 2 finite numbers"):
        mean(1.0, centre=centre).release(np.zeros((10, 2)), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("radius", ["1", None, [1.0], 10**400, 0.0, np.nan])
@pytest.mark.parametrize(
    "mean",
    [
        ClippedMean,
        AdaptiveClippedMean,
        ConcentratedMean,
        lambda radius: ConcentratedMean(radius, calibration="paper"),
        FriendlyCoreMean,
        lambda radius: LevyMean(radius, bound=10.0),
    ],
)
def test_bad_radius(mean, radius):
    with pytest.raises(InvalidInputError, match="radius must be a positive number"):
        mean(radius).release(np.zeros((1_000, 2)), epsilon=1.0, delta=1e-6)


TEXT = {
    "pandas text": pd.DataFrame({"a": np.zeros(100), "t": pd.array(["secret"] * 100, dtype="string")}),
    "pandas str": pd.DataFrame({"a": np.zeros(100), "t": pd.array(["secret"] * 100, dtype="str")}),
    "pandas category": pd.DataFrame({"a": np.zeros(100), "t": pd.Categorical(["secret"] * 100)}),
    "pandas times": pd.DataFrame({"a": np.zeros(100), "t": pd.to_datetime([0] * 100)}),
    "polars text": pl.DataFrame({"a": np.zeros(100), "t": ["secret"] * 100}),
    "polars category": pl.DataFrame(
        {"a": np.zeros(100), "t": pl.Series(["secret"] * 100, dtype=pl.Categorical)}
    ),
    "polars times": pl.DataFrame({"a": np.zeros(100), "t": pl.Series([0] * 100).cast(pl.Datetime)}),
}


@pytest.mark.parametrize("frame", TEXT.values(), ids=TEXT)
def test_a_column_that_is_no_number_by_its_type_is_refused_before_any_noise(frame, monkeypatch):
    monkeypatch.setattr("userdp.mechanisms.noise._draw", lambda *_: pytest.fail("noise was drawn"))
    for release in (
        lambda: ClippedMean(1.0).release(frame, epsilon=1.0, delta=1e-6),
        lambda: userdp.mean(frame, groups=np.arange(100), epsilon=1.0, delta=1e-6),
        lambda: Users.from_rows(frame, groups=np.arange(100)),
    ):
        with pytest.raises(
            InvalidInputError, match=r"must be numbers, and these columns are not: 't' \("
        ) as error:
            release()
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, 2], "b": [True, False]}),
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [0.5, 1.5]}),
        pd.DataFrame({"a": pd.Series([1, "secret"], dtype=object), "b": [0.5, 1.5]}),
        pl.DataFrame({"a": [1, None], "b": [True, False]}),
        pl.DataFrame({"a": pl.Series([1, "secret"], dtype=pl.Object), "b": [0.5, 1.5]}),
    ],
)
def test_frames_of_numbers_and_of_python_objects_are_read(frame):
    rows = Users.from_rows(frame, groups=[0, 1]).rows
    assert rows.dtype == np.float64
    assert rows.shape == (2, 2)
    assert rows[0, 0] == 1
    assert rows[1, 0] == 2 or np.isnan(rows[1, 0])


def test_null_users_count_in_the_divisor(silent_noise):
    """How many users are usable is private: the sum is divided by the public number of users."""
    n = 10
    calibrated = ClippedMean(2.0).calibrate(n, 1, Budget(1.0, 1e-6))
    x = np.ones((n, 1))
    for nulls in range(n + 1):
        x[:nulls] = np.nan
        answer = calibrated.start(silent_noise).answer(x)[0]
        assert answer == pytest.approx((n - nulls) / n, abs=calibrated.lattice.step)
