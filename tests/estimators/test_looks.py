"""Looks at the numbers: what they find, and how much one user can move them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.tables import WILD, crowd, moved, ragged, replaced
from userdp.data.users import Users
from userdp.estimators import looks, votes
from userdp.estimators.looks import MOST_LOOKS, private_places
from userdp.estimators.shapes import BINS_OF_SIZE, LATER_BINS, ZERO_BIN, fit, posterior, second_shapes
from userdp.estimators.sizes import FIRST_BINS, signed_powers, signed_sizes
from userdp.estimators.standardizing import standardize
from userdp.means.votes import ABSTAINS
from userdp.mechanisms.noise import SeededNoise
from userdp.planning.shares import shares
from userdp.privacy.budget import Budget

D = 3
MUCH = 100.0


@pytest.fixture
def all_counts(monkeypatch):
    """Record every histogram that is asked for."""
    recorded = []

    def recording(count):
        def record(*arguments):
            recorded.append(count(*arguments))
            return recorded[-1]

        return record

    for name in ("private_counts", "private_row_counts"):
        monkeypatch.setattr(looks, name, recording(getattr(votes, name)))
    return recorded


def places_of(users, seed=0, first=0.1, later=0.1, most=1.0, norms=None):
    return private_places(users, norms, first, later, most, SeededNoise(seed))


def normal_users(centre, spread, n=2_000, items=4, seed=0):
    rng = np.random.default_rng(seed)
    return ragged(*(rng.normal(centre, spread, size=(items, len(centre))) for _ in range(n)))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_vote_is_a_sign_and_the_power_of_four_above(x):
    vote = int(signed_powers(np.array([[x]]))[0, 0])
    if x == 0:
        assert vote == 0
        return
    power = abs(vote) - 21
    assert math.copysign(1, vote) == math.copysign(1, x)
    if abs(power) < 20:
        assert Fraction(4) ** (power - 1) <= abs(Fraction(x)) < Fraction(4) ** power


def test_who_has_no_finite_size_abstains():
    users = ragged([[1e200]], [[np.nan]], [[-3.0], [1.0]])
    with np.errstate(all="raise"):
        sizes = signed_sizes(users)
    assert sizes[2, 0] == -math.sqrt(5)
    assert signed_powers(sizes)[:2].ravel().tolist() == [ABSTAINS] * 2


@pytest.mark.parametrize("d", [1, 3, 17])
def test_a_size_is_bit_for_bit_a_function_of_its_user(d):
    users = crowd(1, n=40, d=d)
    together = signed_sizes(users)
    for j in range(users.n_users):
        assert signed_sizes(users.take(np.array([j])))[0].tobytes() == together[j].tobytes()


@pytest.mark.parametrize("number", [2, looks._DEEP])
@pytest.mark.parametrize("wild", WILD)
def test_looks_move_by_their_events(wild, number, all_counts, silent_noise):
    """The first look; and a later one wherever it looks, which earlier answers decided, at its own price."""
    rest = normal_users([0.0, 50.0, -1e6], 1.0, n=300)
    some, origin, step = np.array([0, 2]), np.array([0.5, -1e6]), np.array([1e-3, 2.0])
    with np.errstate(all="raise"):
        for rows in (WILD[wild], [[1.0] * D]):
            users = replaced(rest, np.array(rows))
            private_places(users, None, 1.0, 0.0, MUCH, silent_noise)
            looks._Look(users, 1.0, "look", silent_noise)(some, origin, step, number)
    (first, later), (other_first, other_later) = all_counts[:2], all_counts[2:]
    assert moved(first, other_first) <= 1
    assert moved(later, other_later) <= 1


def test_every_look_is_in_the_statement(all_counts):
    _, _, events = places_of(normal_users([0.0, -1e6], 1.0))
    assert len(events) >= 5
    assert events == tuple(found.event for found in all_counts)


def test_rows_share_out_one_vote(silent_noise):
    """Half here and half there, a third of a vote that is not counted, no vote of a null user."""
    users = ragged([[0.0], [1.0]], [[0.0], [9.0], [1.0]], [[np.nan]], [[1.0]])
    found = votes.private_row_counts(
        users, lambda some: some.rows, np.array([0, 1]), 1.0, "rows", silent_noise
    )
    assert found.counts[0] == pytest.approx([0.5 + 1 / 3, 0.5 + 1 / 3 + 1], abs=1e-5)
    assert found.counts.sum() <= 3 - 1 / 3


def test_shared_votes_attain_the_sensitivity_and_no_more(silent_noise):
    def counts(rows):
        users = ragged(rows, *(np.zeros((2, D)) for _ in range(5)))
        bins = np.arange(-3, 4)
        return votes.private_row_counts(users, lambda some: some.rows, bins, 1.0, "rows", silent_noise)

    one, other = counts(np.full((8, D), 1.0)), counts(np.full((1, D), -2.0))
    assert moved(one, other) == pytest.approx(1, abs=1e-9)
    rng = np.random.default_rng(0)
    tables = [counts(rng.integers(-4, 5, size=(rng.integers(1, 9), D))) for _ in range(20)]
    assert max(moved(a, b) for a in [*tables, one, other] for b in tables) <= 1


def test_a_crowd_of_rows_is_one_vote(silent_noise):
    """More rows than a vote has parts count for nothing rather than for too much."""
    rows = np.zeros((2**20 + 1, 1))
    users = Users(np.vstack([rows, [[1.0]]]), np.array([0, len(rows), len(rows) + 1]))
    found = votes.private_row_counts(
        users, lambda some: some.rows, np.array([0, 1]), 1.0, "rows", silent_noise
    )
    assert found.counts[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_columns_are_found_whatever_their_unit(unit):
    centre, spread = np.array([0.0, 1.0, 5.0, -40.0, 2_000.0]), np.array([1.0, 2.0, 1.5, 3.0, 2.0])
    places, _, _ = places_of(normal_users(unit * centre, unit * spread))
    assert places.found.all()
    assert places.centre / unit == pytest.approx(centre, abs=1.2)
    assert (np.abs(np.log2(places.spread / (unit * spread))) < 1).all()


@pytest.mark.parametrize("offset", [190.0, 3_000.0, -2e6])
def test_columns_are_found_far_from_zero(offset):
    """Only columns that lie far from zero pay for more looks, and by their number."""
    users = normal_users([0.0, 0.0, 0.0, offset], 0.8)
    places, _, events = places_of(users)
    assert places.found.all()
    assert places.centre[3] == pytest.approx(offset, abs=0.6)
    assert places.spread[3] == pytest.approx(0.8, rel=0.6)
    assert [event.name for event in events[1:]] == [f"look {i}" for i in range(2, len(events) + 1)]
    # A quarter of the columns; deep down twice that.
    prices = [0.1 / 2] * 2 + [0.1 / math.sqrt(2)] * (MOST_LOOKS - 3)
    assert [event.mu for event in events[1:]] == pytest.approx(prices[: len(events) - 1])
    _, _, near = places_of(users.take(np.arange(2_000)), later=0.0)
    assert len(near) == 1


def test_a_column_millions_of_units_away_is_rarely_lost_among_few_users():
    """What is lost once in twenty fits makes the average fit a bad one."""
    split = shares(500, 4, Budget(1.0, 1e-6), is_regression=True)
    users, lost = normal_users([0.0, 0.0, 0.0, 1e6], 1.0, n=500), 0
    for seed in range(200):
        columns, _ = standardize(users, split, np.zeros(4, dtype=bool), SeededNoise(seed))
        lost += not (columns.scale[3] < 10 and abs(columns.centre[3] - 1e6) < 10)
    assert lost <= 3


@pytest.mark.parametrize("bins_off", [-4.0, 4.0])
def test_a_zoom_sees_as_far_as_the_column_may_be(bins_off, silent_noise):
    one = np.ones(1)
    seen = looks._Seen(0 * one, 2.5 * one, 3.0 * one, 8.0 * one, one, 6.0 * one, 0.03 * one, 0.3 * one)
    look = looks._Look(normal_users([bins_off], 0.1, n=100), 1.0, "look", silent_noise)
    closer, _ = looks._zoom(look, seen, np.array([0]), 3)
    assert closer.centre[0] == pytest.approx(bins_off, abs=0.2)
    assert closer.spread[0] < 0.3


@pytest.mark.parametrize("larger", np.linspace(-1.5, 1.5, 13))
def test_a_narrow_column_is_one_wherever_the_first_look_left_it(larger):
    """A size is a guess between two powers of four: a column may be nearly three times as large, or as small."""
    shapes, place = second_shapes(), round(BINS_OF_SIZE * 2**larger + ZERO_BIN)
    seen = (LATER_BINS == place).astype(float)[None]
    weights = posterior(fit(seen, 0.03, shapes.expected) + shapes.log_prior)
    assert weights @ (shapes.spread <= 0.15 * BINS_OF_SIZE) > 0.9
    assert weights @ shapes.mean == pytest.approx(place, abs=0.5)


@pytest.mark.parametrize("within", [0.0, 0.1])
def test_a_column_that_hardly_changes_within_a_user_is_as_wide_as_users_differ(within):
    rng = np.random.default_rng(0)
    users = ragged(
        *(1e4 + rng.normal(0, 50) + within * rng.normal(size=(rng.integers(1, 4), 1)) for _ in range(2_000))
    )
    split = shares(users.n_users, 1, Budget(1.0, 1e-6), is_regression=False)
    columns, _ = standardize(users, split, np.zeros(1, dtype=bool), SeededNoise(0))
    assert columns.scale[0] == pytest.approx(50, rel=0.4)
    assert columns.centre[0] == pytest.approx(1e4, abs=20)


def test_a_column_over_powers_of_ten_is_as_wide_as_they_are():
    rng = np.random.default_rng(0)
    users = ragged(*(rng.lognormal(3.0, 1.5, size=(2, 1)) for _ in range(2_000)))
    places, _, events = places_of(users)
    assert places.found[0]
    assert 20 < places.spread[0] < 400  # half of the values are below 20
    assert len(events) == 1  # nothing to look closer at


def test_of_a_column_whose_sizes_scatter_less_is_let_in():
    """A column of one size is let in far; of one over powers of ten three units say what there is to say."""
    rng = np.random.default_rng(0)
    bounds = []
    for scatter in (0.0, 0.5, 1.0, 3.0):
        users = ragged(*(np.exp(scatter * rng.normal()) * rng.normal(size=(4, 1)) for _ in range(2_000)))
        bounds.append(places_of(users)[0].bound[0])
    assert bounds[0] == 8
    assert np.all(np.diff(bounds) <= 0)
    assert bounds[2] < 6
    assert bounds[3] == 3


def test_favourite_values_are_no_narrow_column():
    """Three values, one of them of half of the rows."""
    rng = np.random.default_rng(0)
    users = ragged(*(rng.choice([8.0, 12.0, 16.0], p=[0.25, 0.5, 0.25], size=(3, 1)) for _ in range(600)))
    found = [places_of(users, seed=seed, first=0.06, later=0.06)[0] for seed in range(10)]
    spreads = np.array([places.spread[0] for places in found])
    assert ((spreads > 1.4) & (spreads < 6)).mean() >= 0.8


@pytest.mark.parametrize("value", [0.0, 5.0, -1e6])
def test_a_constant_is_left_out(value):
    users = ragged(*(np.full((2, 1), value) for _ in range(3_000)))
    places, _, _ = places_of(users)
    assert not places.found[0]


def test_noise_is_no_column():
    """Too few users to see anything: nothing is found that is not there."""
    users = normal_users([3.0] * 6, 1.0, n=30)
    found = [places_of(users, seed=seed, first=0.05, later=0.0)[0].found for seed in range(20)]
    assert np.mean(found) < 0.2


def test_a_column_that_hardly_anybody_has_is_no_guess():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((500, 30)) < 0.02, 1.0, 0.0)
    rows[:, :3] = rng.normal(size=(500, 3))
    users = Users(rows, np.arange(501))
    found = np.mean([places_of(users, seed=seed, later=0.0)[0].found for seed in range(20)], axis=0)
    assert found[:3].mean() > 0.8
    assert found[3:].mean() < 0.15


def test_a_column_far_away_is_not_taken_for_one_nearby():
    """Few users for the noise: it may be taken for a wide one, not for one that lies elsewhere."""
    users = normal_users([1e5, 0.0, 3.0], 1.0, n=500)
    places = [places_of(users, seed=seed, first=0.05, later=0.05)[0] for seed in range(40)]
    misses = [abs(one.centre[0] - 1e5) > 3 * one.spread[0] for one in places if one.found[0]]
    assert np.mean(misses) < 0.1


def test_looks_end_where_they_would_cost_too_much():
    users = normal_users([1e6, -1e6], 1.0)
    _, _, events = places_of(users, most=math.sqrt(0.1**2 + 2 * 0.1**2) * 1.001)
    assert len(events) == 3
    assert math.hypot(*(event.mu for event in events)) <= math.sqrt(0.03) * 1.001
    # One column of two: the third later look costs as much as two columns.
    for most, n_looks in [(0.02 + 0.0099, 3), (0.02 + 0.0101, 4)]:
        assert len(places_of(normal_users([1e6, 0.0], 1.0), most=math.sqrt(most))[2]) == n_looks


def test_without_a_centre_a_spread_is_a_root_mean_square():
    users = normal_users([30.0, 0.0], [1.0, 2.0])
    places, _, events = private_places(users, None, 0.1, 0.1, 1.0, SeededNoise(0), around_zero=True)
    assert places.centre.tolist() == [0.0, 0.0]
    assert (np.abs(np.log2(places.spread / [30.0, 2.0])) < 1).all()
    assert len(events) == 1


def test_the_typical_norm_comes_with_the_first_look():
    rng = np.random.default_rng(0)
    norms = rng.uniform(0.5, 0.9, size=(2_000, 1))
    users = normal_users([0.0], 1.0)
    _, norm, events = places_of(users, norms=norms)
    assert 0.4 < norm < 1.2
    assert events[0].coordinates == 2 * len(FIRST_BINS)
    assert places_of(users, norms=np.zeros((2_000, 1)))[1] is None


def test_what_looks_find_depends_on_counts_alone():
    """Other values in the same bins, the same noise: the same answer, so nothing else was read."""
    rng = np.random.default_rng(0)
    powers = 4.0 ** rng.integers(-2, 3, size=(300, 1))
    found = [
        places_of(ragged(*(factor * powers[:, None])), seed=1, later=0.0, norms=factor * powers)
        for factor in (1.0, 1.4)
    ]
    assert found[0][0].centre.tolist() == found[1][0].centre.tolist()
    assert found[0][0].spread.tolist() == found[1][0].spread.tolist()
    assert found[0][1] == found[1][1]


def test_a_column_that_cannot_be_found_does_not_spoil_the_others():
    rng = np.random.default_rng(0)
    users = ragged(
        *(np.column_stack([rng.normal(size=6), 10.0 ** rng.uniform(-12, 12, size=6)]) for _ in range(2_000))
    )
    split = shares(users.n_users, 2, Budget(1.0, 1e-6), is_regression=False)
    columns, _ = standardize(users, split, np.zeros(2, dtype=bool), SeededNoise(0))
    assert columns.scale[0] == pytest.approx(1.0, rel=0.3)


def test_booleans_are_let_in_whole():
    """However rarely they are true."""
    rng = np.random.default_rng(0)
    rows = rng.random((30_000, 2)) < [0.5, 0.03]
    users = Users.from_rows(rows.astype(float), np.arange(30_000))
    split = shares(users.n_users, 2, Budget(3.0, 1e-6), is_regression=False, n_booleans=2)
    columns, _ = standardize(users, split, np.ones(2, dtype=bool), SeededNoise(0))
    low, high = columns.limits
    assert columns.scale == pytest.approx([0.5, 0.17], abs=0.03)
    assert np.diff(columns.apply(np.array([[0.0, 0.0], [1.0, 1.0]])), axis=0)[0] == pytest.approx(
        1 / columns.scale
    )
    assert np.all(low <= 0)
    assert np.all(high >= 1)


def test_standardizing_finds_centre_and_spread():
    users = normal_users([1.0, -0.5, 0.0, 20.0], [1.0, 2.0, 0.5, 2.0], n=3_000)
    split = shares(users.n_users, 4, Budget(3.0, 1e-6), is_regression=True)
    columns, events = standardize(users, split, np.zeros(4, dtype=bool), SeededNoise(0))
    spreads = np.array([1.0, 2.0, 0.5, 2.0])
    assert columns.centre / spreads == pytest.approx([1.0, -0.25, 0.0, 10.0], abs=0.15)
    assert columns.scale == pytest.approx(spreads, rel=0.35)
    assert [event.name for event in events][:2] == ["feature scales", "look 2"]
    assert [event.name for event in events][-2:] == ["centre", "second moments"]
