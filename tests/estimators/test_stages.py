"""Each stage on neighbouring users: the integers move by no more than the event says, and by that much."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.tables import WILD, ragged, replaced
from userdp.data.users import Users
from userdp.estimators import stages, votes
from userdp.estimators.balls import BallMean
from userdp.estimators.rows import boolean_rates, user_rates
from userdp.estimators.standardizing import importance_of, standardize
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import SeededNoise
from userdp.planning.shares import shares
from userdp.privacy.accounting import GaussianEvent
from userdp.privacy.budget import Budget

D = 3


def crowd(seed=0, n=12, d=D):
    rng = np.random.default_rng(seed)
    return ragged(*(rng.lognormal(0, 3, size=(rng.integers(1, 6), d)) for _ in range(n)))


@pytest.fixture
def counts_of(silent_noise):
    """Return the function that shows the votes that a noiseless scale stage adds up, and their event."""

    def count(users):
        ballot = votes.nearest_powers_of_four(stages.user_magnitudes(users))
        found = votes.private_counts(ballot, votes.POWERS, 1.0, "scales", silent_noise)
        return found.counts, found.event

    return count


def sum_in_units(found, centre, radius, n):
    """Undo a noiseless ball mean: the integer sum over users."""
    return (found.value - centre) * n / Lattice.fine_enough(radius, n, len(centre)).step


def test_votes_move_by_the_event_s_sensitivity(counts_of):
    users, moves = crowd(), []
    for rows in [*WILD.values(), [[2.0**-30] * D], [[2.0**30] * D], [[1.0, 2.0, 4.0], [1e9, 3.0, -5.0]]]:
        for other in ([[1.0] * D], [[np.nan] * D], [[2.0**45] * D]):
            (one, event), (two, _) = (counts_of(replaced(users, np.array(r))) for r in (rows, other))
            moves.append(np.linalg.norm(one - two) * votes.COUNT_RESOLUTION / event.sensitivity)
    assert max(moves) <= 1
    assert max(moves) > 1 - 1e-9


def test_a_null_user_casts_no_vote(counts_of):
    users = crowd()
    without, _ = counts_of(replaced(users, np.array([[1.0, 2.0, 3.0], [np.nan, 2.0, 3.0]])))
    counts, _ = counts_of(users)
    assert counts.sum(axis=1).tolist() == [users.n_users] * D
    assert without.sum(axis=1).tolist() == [users.n_users - 1] * D


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_a_vote_is_the_nearest_power_of_four(x):
    vote = int(votes.nearest_powers_of_four(np.array([[x]]))[0, 0])
    # x against 2^(2 vote -+ 1), in exact arithmetic.
    exact = Fraction(x)
    assert Fraction(2) ** (2 * vote - 1) <= exact <= Fraction(2) ** (2 * vote + 1)


def test_magnitudes_are_those_of_the_loop():
    users = ragged([[1.0, 0.0, 3.0], [3.0, 0.0, 3.0], [1.0, 0.0, 3.0]], [[0.0, -2.0, 5.0]])
    found = stages.user_magnitudes(users)
    assert found[0, [0, 2]].tolist() == [2.0, 3.0]  # of the deviations from the first row; of the values
    assert np.isnan(found[0, 1])
    assert np.isnan(found[1, 0])
    assert found[1, 1:].tolist() == [2.0, 5.0]
    assert stages.user_magnitudes(users, around_zero=True)[0, 2] == 3.0


@pytest.mark.parametrize("d", [1, 3, 17])
def test_a_magnitude_is_bit_for_bit_a_function_of_its_user(d):
    users = crowd(1, n=40, d=d)
    together = stages.user_magnitudes(users)
    for j in range(users.n_users):
        alone = stages.user_magnitudes(users.take(np.array([j])))
        assert alone[0].tobytes() == together[j].tobytes()


@pytest.mark.parametrize("d", [1, 3, 50])
def test_ball_means_move_by_the_event_s_sensitivity(d, silent_noise):
    n, centre, radius = 9, np.linspace(-1, 1, d), 0.7
    rng = np.random.default_rng(d)
    vectors, far = rng.normal(size=(n, d)), 1e6 * np.ones(d)
    moves = []
    for row in (far, -far, far * 1e300, np.full(d, np.inf), np.full(d, np.nan), centre, rng.normal(size=d)):
        sums = []
        for other in (row, far):
            vectors[0] = other
            found = stages.private_mean_in_ball(vectors, centre, radius, 0.5, "stage", silent_noise)
            sums.append(sum_in_units(found, centre, radius, n))
        moves.append(np.linalg.norm(sums[0] - sums[1]) / found.event.sensitivity)
    assert max(moves) <= 1 + 1e-9
    assert max(moves) > 0.998 - math.sqrt(d) / 4096
    assert found.event.mu <= 0.5


def test_a_null_user_counts_as_the_centre(silent_noise):
    centre = np.array([1.0, -2.0])
    one, two = (
        stages.private_mean_in_ball(np.vstack([row, np.ones((4, 2))]), centre, 9.0, 1.0, "", silent_noise)
        for row in (centre, np.full(2, np.nan))
    )
    assert one.value.tobytes() == two.value.tobytes()


@pytest.fixture
def ball_sums(monkeypatch):
    """Record the integer sum and the event of every ball mean that a stage asks for."""
    recorded = []
    mean = stages.private_mean_in_ball

    def record(vectors, centre, radius, mu, name, noise):
        found = mean(vectors, centre, radius, mu, name, noise)
        recorded.append((sum_in_units(found, centre, radius, len(vectors)), found.event))
        return found

    monkeypatch.setattr(stages, "private_mean_in_ball", record)
    return recorded


@pytest.fixture
def all_counts(monkeypatch):
    """Record every histogram that a stage asks for, and its event."""
    recorded = []
    count = votes.private_counts

    def record(*arguments):
        recorded.append(count(*arguments))
        return recorded[-1]

    monkeypatch.setattr(stages, "private_counts", record)
    return recorded


def moved(one, two):
    """How far two noiseless histograms are apart, as a share of the sensitivity that was paid for."""
    return np.linalg.norm(one.counts - two.counts) * votes.COUNT_RESOLUTION / one.event.sensitivity


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("first", [1e9, -1e9, 3.0, np.nan, np.inf])
def test_location_and_centre_move_by_their_events(first, offset, all_counts, ball_sums, silent_noise):
    """Look by look, at equal earlier answers: the rest agrees where it is, whoever the first user is."""
    rest, looks = np.random.default_rng(0).normal(offset, 1.0, size=(200, D)), 1 if offset == 0 else 4
    with np.errstate(all="ignore"):
        for value in (first, 0.0):
            means = np.vstack([np.full(D, value), rest])
            _, events = stages.private_centre(means, 30.0, 10.0, silent_noise)
    for one, two in zip(all_counts[:looks], all_counts[looks:], strict=True):
        assert moved(one, two) <= 1
    (one, event), (two, _) = ball_sums
    assert np.linalg.norm(one - two) / event.sensitivity <= 1 + 1e-9
    assert events[:-1] == tuple(found.event for found in all_counts[:looks])
    assert [event.mu for event in events[:-1]] == pytest.approx([30.0] * looks)


def test_a_place_far_away_attains_the_sensitivity(all_counts, silent_noise):
    rest = np.zeros((200, D))
    for first in (4.0, -20.0):
        stages.private_centre(np.vstack([np.full(D, first), rest]), 30.0, 0.0, silent_noise)
    assert moved(*all_counts) == pytest.approx(1)


@pytest.mark.parametrize("offset", [0.0, -5.0, 190.0, 3_000.0, -2e6])
def test_columns_are_found_far_from_zero(offset):
    """Within half a unit; only what lies beyond the first look's 256 units pays for more looks, by its columns."""
    means = np.random.default_rng(0).normal([0.0, 0.0, 0.0, offset], 0.8, size=(2_000, 4))
    centre, events = stages.private_centre(means, 0.1, 0.05, SeededNoise(0))
    assert centre.found.all()
    assert centre.place == pytest.approx([0.0, 0.0, 0.0, offset], abs=0.6)
    zooms = [event.mu for event in events if "zoom" in event.name]
    assert zooms == pytest.approx([] if abs(offset) < 256 else [0.1 / math.sqrt(2)] * 3)


def test_noise_is_not_a_place():
    """Columns beyond every look: the largest noise must not be taken for a place."""
    means = np.full((500, 6), 1e9)
    found = [stages.private_centre(means, 0.05, 0.0, SeededNoise(seed))[0].found for seed in range(20)]
    assert np.mean(found) < 0.02


def test_a_column_far_away_is_not_taken_for_one_nearby():
    """Few users for the noise: half of the votes beyond sight could be missed by mere bad luck."""
    means = np.tile([1e5, 0.0, 1.0], (500, 1))
    places = [
        stages.private_centre(means, 0.236 * math.sqrt(0.03), 0.0, SeededNoise(seed))[0] for seed in range(60)
    ]
    assert not any(centre.found[0] and abs(centre.place[0]) < 1e4 for centre in places)


def test_the_unit_of_a_column_that_hardly_anybody_has_is_no_guess():
    rng = np.random.default_rng(0)
    magnitudes = np.where(rng.random((500, 30)) < 0.02, 1.0, np.nan)
    magnitudes[:, :3] = 1.0
    scales = [stages.private_scale(magnitudes, 0.1, "scales", SeededNoise(seed))[0] for seed in range(20)]
    kept = np.mean([scale.kept for scale in scales], axis=0)
    assert kept[:3].min() > 0.9
    assert kept[3:].mean() < 0.15


def test_a_unit_is_found_where_users_differ_by_many_powers():
    rng = np.random.default_rng(0)
    magnitudes = np.exp(rng.normal(0, 3.0, size=(500, 1)))
    scale, _ = stages.private_scale(magnitudes, 0.15, "scales", SeededNoise(0))
    assert scale.kept[0]
    assert 1 / 8 < scale.magnitude[0] < 8


def test_a_column_in_which_users_differ_is_as_wide_as_they_do():
    """Users far apart, each with rows close together: found, and its unit is what users differ by."""
    rng = np.random.default_rng(0)
    means = rng.normal(30.0, [0.5, 10.0, 40.0], size=(3_000, 3))
    centre, _ = stages.private_centre(means, 0.1, 0.0, SeededNoise(0))
    assert centre.found.all()
    assert centre.spread == pytest.approx([1.0, 5.0, 20.0])
    assert (np.abs(centre.place - 30) < [0.5, 5.0, 20.0]).all()


def test_where_the_narrow_bell_leaves_doubt_the_wider_one_is_taken():
    bins = np.arange(-128, 129)
    # Two peaks, each with users enough for a narrow bell, of which neither is certain; a wide bell covers both.
    counts = 500.0 * np.isin(bins, (-2, 2))
    event = GaussianEvent("votes", 1.0, 10.0, bins.size)
    found = votes.NoisyCounts(bins, counts[None], 100.0, 1_000, event)
    narrow = found.places((0.6,), votes.near_zero)
    assert narrow.support[0] > 0.25
    assert narrow.certainty[0] < 0.7
    places = found.places((0.6, 2.5), votes.near_zero, narrow=True)
    assert places.is_found[0]
    assert places.width[0] == 2.5
    assert abs(places.place[0]) < 1


def test_a_wide_bell_somewhere_else_is_no_answer():
    bins = np.arange(-128, 129)
    # Two peaks, of which neither is certain; and as many users scattered around 40.
    counts = 350.0 * np.isin(bins, (0, -30)) + 110.0 * (np.abs(bins - 40) <= 4)
    event = GaussianEvent("votes", 1.0, 10.0, bins.size)
    found = votes.NoisyCounts(bins, counts[None], 80.0, 1_500, event)
    assert found.places((2.5,), votes.anywhere).is_found[0]
    places = found.places((0.6, 2.5), votes.anywhere, narrow=True)
    assert places.width[0] == 0.6
    assert not places.is_found[0]


def test_a_target_in_doubt_is_taken_at_its_likeliest_place(silent_noise):
    """A feature would be looked for with a wider bell; a target is not dropped, and the narrow one tells more."""
    means = np.where(np.arange(400) < 205, 3.0, -3.0)
    rows = (means[:, None] + [-1.0, 1.0]).reshape(-1, 1)
    target, _ = stages.private_target(Users(rows, np.arange(0, 801, 2)), 0.03, 0.02, 0.0, silent_noise)
    assert 2.0 < target.middle < 6.0  # within a bin; a wide bell would lie in between


def test_a_column_that_cannot_be_found_is_left_out():
    rng = np.random.default_rng(0)
    scattered, _ = stages.private_centre(rng.uniform(-250, 250, size=(300, 1)), 0.2, 0.2, SeededNoise(0))
    assert not scattered.found.any()


def test_second_moments_move_by_their_event(ball_sums, silent_noise):
    rest = np.ones((8, D))
    for first in (0.0, 16.0):
        found, _ = stages.private_second_moment(np.vstack([np.full(D, first), rest]), 0.5, silent_noise)
        assert ((found >= 1 / 16) & (found <= 16)).all()
    (one, event), (two, _) = ball_sums
    assert 0.998 < np.linalg.norm(one - two) / event.sensitivity <= 1 + 1e-9


@pytest.mark.parametrize(("k", "attained"), [(2, 0.999), (3, 0.865), (10, 0.745)])
def test_base_rates_move_by_their_event(k, attained, ball_sums, silent_noise):
    """Two classes attain the bound; of more classes the simplex is smaller than its ball."""
    rest = np.full((8, k), 1 / k)
    for first in (np.eye(k)[0], np.eye(k)[1], np.full(k, np.nan)):
        rates, _ = stages.private_base_rate(np.vstack([first, rest]), 0.5, silent_noise)
        assert rates.sum() == pytest.approx(1)
        assert (rates > 0).all()
    moves = [
        np.linalg.norm(one - two) / event.sensitivity for one, event in ball_sums for two, _ in ball_sums
    ]
    assert attained < max(moves) <= 1 + 1e-9


def test_rates_at_a_corner_are_not_clipped(silent_noise):
    rates, _ = stages.private_base_rate(np.tile([1.0, 0.0, 0.0], (5_000, 1)), 3.0, silent_noise)
    assert rates[0] > 0.99


def test_rates_of_users():
    users = ragged([[0.0]] * 4, [[0.0]], [[0.0]] * 2, targets=[[0, 1, 1, 2], [2], [1, np.nan]])
    rates = user_rates(users, 3)
    assert rates[:2].tolist() == [[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]
    assert np.isnan(rates[2]).all()


@pytest.mark.parametrize("wild", WILD)
def test_wild_users_cause_no_floating_point_error(wild, silent_noise):
    """Only fit silences NumPy; stages whose input a user controls do it themselves."""
    users = replaced(crowd(), np.array(WILD[wild]))
    means = users.means()
    with np.errstate(all="raise"):
        magnitudes = stages.user_magnitudes(users)
        stages.private_scale(magnitudes, 1.0, "scales", silent_noise)
        stages.private_mean_in_ball(means, np.zeros(D), 1.0, 1.0, "mean", silent_noise)


def test_scales_of_plain_columns_are_found():
    """Within a factor of about two, whatever the unit."""
    rng = np.random.default_rng(0)
    unit = np.array([1e-6, 1.0, 1e6])
    users = ragged(*(rng.normal(size=(4, 3)) * unit for _ in range(500)))
    scale, _ = stages.private_scale(stages.user_magnitudes(users), 0.5, "scales", SeededNoise(0))
    assert scale.kept.all()
    assert (np.abs(np.log2(scale.magnitude / unit)) < 1.6).all()


def test_the_scale_of_a_column_that_few_users_have_is_found():
    """One user in fifty: no bell may fit better than their votes because it is lower."""
    rng = np.random.default_rng(0)
    users = ragged(*(np.array([[rng.normal(), float(j % 50 == 0)]] * 2) for j in range(3_000)))
    scale, _ = stages.private_scale(stages.user_magnitudes(users), 0.5, "scales", SeededNoise(0))
    assert np.abs(np.log2(scale.magnitude)).max() < 1.6


def test_standardizing_finds_centre_and_spread():
    rng = np.random.default_rng(0)
    users = ragged(*(rng.normal([1.0, -0.5, 0.0], [1.0, 2.0, 0.5], size=(4, 3)) for _ in range(3_000)))
    split = shares(users.n_users, 3, Budget(3.0, 1e-6), is_regression=True)
    columns, events = standardize(users, split, np.zeros(3, dtype=bool), SeededNoise(0))
    spreads = np.array([1.0, 2.0, 0.5])
    assert columns.centre / spreads == pytest.approx([1.0, -0.25, 0.0], abs=0.15)
    assert columns.scale == pytest.approx(spreads, rel=0.35)
    assert [event.name for event in events] == [
        "feature scales",
        "location",
        "centre",
        "second moments",
    ]


def test_what_votes_find_depends_on_votes_alone():
    """Other values of the same vote, the same noise: the same answer, so nothing else was read."""
    rng = np.random.default_rng(0)
    steps = np.where(rng.random((300, 1)) < 0.5, 1.0, 4.0)
    found = []
    for factor in (1.0, 1.4):
        numbers = ragged(*(np.array([[0.0], [factor * step[0]]]) for step in steps))
        scale, norm, _ = stages.private_feature_scale(numbers, factor * steps, False, 0.06, SeededNoise(1))
        centre, _ = stages.private_centre(0.5 * factor * steps, 0.3, 0.0, SeededNoise(1))
        found.append((scale.magnitude.tolist(), norm, centre.place.tolist()))
    assert found[0] == found[1]


def test_a_column_without_a_unit_does_not_spoil_the_others():
    rng = np.random.default_rng(0)
    users = ragged(
        *(np.column_stack([rng.normal(size=6), 10.0 ** rng.uniform(-12, 12, size=6)]) for _ in range(2_000))
    )
    split = shares(users.n_users, 2, Budget(1.0, 1e-6), is_regression=False)
    columns, _ = standardize(users, split, np.zeros(2, dtype=bool), SeededNoise(0))
    assert columns.scale[0] == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize("within", [0.0, 0.1])
def test_a_column_that_hardly_changes_within_a_user_has_the_unit_of_what_users_differ_by(within):
    rng = np.random.default_rng(0)
    users = ragged(
        *(1e4 + rng.normal(0, 50) + within * rng.normal(size=(rng.integers(1, 4), 1)) for _ in range(2_000))
    )
    split = shares(users.n_users, 1, Budget(1.0, 1e-6), is_regression=False)
    columns, _ = standardize(users, split, np.zeros(1, dtype=bool), SeededNoise(0))
    assert columns.scale[0] == pytest.approx(50, rel=0.4)
    assert columns.centre[0] == pytest.approx(1e4, abs=20)


def test_rates_of_booleans_move_by_their_event(ball_sums, silent_noise):
    rest = np.zeros((8, D))
    for first in (np.ones(D), -np.ones(D), np.full(D, np.nan)):
        stages.private_rates(np.vstack([first, rest]), 0.5, 0.5, silent_noise)
    moves = [
        np.linalg.norm(one - two) / event.sensitivity for one, event in ball_sums for two, _ in ball_sums
    ]
    assert 0.998 < max(moves) <= 1 + 1e-9


def test_a_unit_of_a_boolean_is_its_spread_and_no_finer_than_the_noise():
    rng = np.random.default_rng(0)
    rates = rng.binomial(10, [0.5, 0.2, 0.001, 0.001], size=(2_000, 4)) / 10
    often, units, event = stages.private_rates(rates, 0.55, 0.05, SeededNoise(0))
    noise = event.scale * Lattice.fine_enough(1.5 * 0.55, 2_000, 4).step / 2_000
    assert often == pytest.approx([0.5, 0.2, 0.0, 0.0], abs=4 * noise)
    assert units[:2] == pytest.approx([0.5, 0.4], abs=0.03)
    assert (units[2:] >= np.sqrt(noise * (1 - noise)) * (1 - 1e-9)).all()


def test_rates_learn_from_each_other():
    """One often, the others hardly ever: noise does not make them common. All alike: noise does not tell them apart."""
    rng, noise = np.random.default_rng(0), 0.1
    few = np.append(0.5, np.full(20, 0.003)) + noise * rng.normal(size=21)
    many = np.full(40, 0.1) + noise * rng.normal(size=40)
    found = [stages.likely_rates(BallMean(values, noise, None)) for values in (few, many)]
    assert found[0][0] == pytest.approx(0.5, abs=0.3)
    assert found[0][1:].max() < 0.06
    assert found[1].std() < 0.06
    assert found[1].mean() == pytest.approx(0.1, abs=0.05)


def test_of_what_is_rarely_true_little_is_expected():
    importance = importance_of(np.array([0.5, 0.001, 0.001]))
    assert importance == pytest.approx([1.0, 0.004, 0.004], rel=0.02)
    assert importance_of(np.full(7, 0.03)) == pytest.approx(np.ones(7))


@pytest.mark.parametrize("n", [50, 3_000])
def test_booleans_alone_cost_one_vote_and_a_mean(n):
    rng = np.random.default_rng(0)
    users = ragged(*(rng.random((4, 16)) < 0.0625 for _ in range(n)))
    split = shares(n, 16, Budget(0.3 if n == 50 else 3.0, 1e-6), is_regression=False, n_booleans=16)
    columns, events = standardize(users, split, np.ones(16, dtype=bool), SeededNoise(0))
    expected = 0.0 if n == 50 else 0.0625  # 50 users are too few to know
    assert columns.centre.mean() == pytest.approx(expected, rel=0.2)
    assert np.isfinite(columns.scale).all()
    assert [event.coordinates for event in events] == ([] if n == 50 else [len(votes.POWERS), 16])


def test_rates_of_a_user_s_booleans():
    users = ragged([[1.0, 0.0, 1.0, 9.0], [0.0, 0.0, 1.0, 9.0]], [[np.nan, np.nan, np.nan, np.nan]])
    rates = boolean_rates(users, np.array([True, True, True, False]))
    assert rates[0].tolist() == [0.5, 0.0, 1.0]
    assert np.isnan(rates[1]).all()
    assert boolean_rates(users, np.zeros(4, dtype=bool)).shape == (2, 0)


TARGETS = [0.0, 1.0, -1e9, 2.0**45, np.nan, np.inf, 5e-324]


@pytest.mark.parametrize("first", TARGETS)
def test_targets_move_by_their_events(first, all_counts, ball_sums, silent_noise):
    """At equal earlier answers: the unit is that of the rest, whoever the first user is."""
    rest = np.random.default_rng(0).normal(3.0, 1.0, size=(200, 2, 1))
    for value in (first, 3.0):
        users = ragged([[value], [value]], *rest)
        with np.errstate(all="ignore"):
            stages.private_target(users, 50.0, 50.0, 50.0, silent_noise)
    (scale, location), (other_scale, other_location) = all_counts[:2], all_counts[2:]
    assert moved(scale, other_scale) <= 1
    assert moved(location, other_location) <= 1
    (one, event), (two, _) = ball_sums
    assert np.linalg.norm(one - two) / event.sensitivity <= 1 + 1e-9


def test_a_unit_that_is_a_guess_is_taken_as_tiny():
    users = ragged(*np.random.default_rng(0).normal(5.0, 1.0, size=(20, 2, 1)))
    found = [stages.private_target(users, 0.02, 0.02, 0.02, SeededNoise(seed))[0] for seed in range(20)]
    tiny = [target for target in found if target.unit < 1e-9]
    assert len(tiny) > 10
    assert max(abs(target.middle) for target in tiny) < 1e-9


@pytest.mark.parametrize("offset", [0.0, 4.0, -50.0, 300.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_targets_are_found_wherever_they_are(offset, unit):
    """Within a fifth of their spread, up to some thirty units from zero."""
    rng = np.random.default_rng(0)
    spread = max(1.0, abs(offset) / 15)
    users = ragged(*(unit * rng.normal(offset, spread, size=(4, 1)) for _ in range(2_000)))
    target, events = stages.private_target(users, 0.05, 0.05, 0.05, SeededNoise(0))
    assert target.middle == pytest.approx(offset * unit, abs=0.2 * spread * unit)
    assert 0.4 < target.unit / (spread * unit) < 2.5
    assert [event.name for event in events] == ["target scale", "target location", "target mean"]


@pytest.mark.parametrize("d", [1, 3, 17, 200])
def test_the_norm_of_a_user_s_rates_is_bit_for_bit_a_function_of_them(d):
    rates = np.random.default_rng(d).random((40, d))
    together = stages._norms(rates)
    for j in range(len(rates)):
        assert stages._norms(rates[j : j + 1])[0].tobytes() == together[j].tobytes()
