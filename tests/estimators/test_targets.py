"""Unit and middle of the targets: found wherever they are, and moved by no more than the events say."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.tables import WILD, crowd, moved, ragged, replaced
from userdp.data.users import Users
from userdp.estimators import targets, votes
from userdp.estimators.looks import Places
from userdp.estimators.targets import private_target, private_unit, target_by_looks, user_magnitudes
from userdp.means.lattice import Lattice
from userdp.means.votes import nearest_powers_of_four
from userdp.mechanisms.noise import SeededNoise

D = 3


def counts_of(users, noise):
    """Votes for the magnitudes of several columns at once."""
    ballot = nearest_powers_of_four(user_magnitudes(users))
    return votes.private_counts(ballot, votes.POWERS, 1.0, "scales", noise)


def test_votes_move_by_the_event_s_sensitivity(silent_noise):
    users = crowd()
    rows = [
        *WILD.values(),
        [[2.0**-30] * D],
        [[2.0**30] * D],
        [[1.0, 2.0, 4.0], [1e9, 3.0, -5.0]],
        [[2.0**45] * D],
    ]
    found = [counts_of(replaced(users, np.array(some)), silent_noise) for some in rows]
    assert 1 - 1e-9 < max(moved(one, other) for one in found for other in found) <= 1


def test_a_null_user_casts_no_vote(silent_noise):
    users = crowd()
    without = counts_of(replaced(users, np.array([[1.0, 2.0, 3.0], [np.nan, 2.0, 3.0]])), silent_noise)
    assert counts_of(users, silent_noise).counts.sum(axis=1).tolist() == [users.n_users] * D
    assert without.counts.sum(axis=1).tolist() == [users.n_users - 1] * D


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_a_vote_is_the_nearest_power_of_four(x):
    vote = int(nearest_powers_of_four(np.array([[x]]))[0, 0])
    # x against 2^(2 vote -+ 1), in exact arithmetic.
    exact = Fraction(x)
    assert Fraction(2) ** (2 * vote - 1) <= exact <= Fraction(2) ** (2 * vote + 1)


def test_magnitudes_are_those_of_the_loop():
    users = ragged(
        [[1.0, 0.0, 3.0], [3.0, 0.0, 3.0], [1.0, 0.0, 3.0]], [[0.0, -2.0, 5.0]], [[99.0] * 3, [100.0] * 3]
    )
    found = user_magnitudes(users)
    assert found[0, [0, 2]].tolist() == [2.0, 3.0]  # of the deviations from the first row; of the values
    assert np.isnan(found[0, 1])
    assert np.isnan(found[1, 0])
    assert found[1, 1:].tolist() == [2.0, 5.0]
    assert found[2] == pytest.approx(9.95, abs=0.01)  # a tenth of the values


@pytest.mark.parametrize("d", [1, 3, 17])
def test_a_magnitude_is_bit_for_bit_a_function_of_its_user(d):
    users = crowd(1, n=40, d=d)
    together = user_magnitudes(users)
    for j in range(users.n_users):
        assert user_magnitudes(users.take(np.array([j])))[0].tobytes() == together[j].tobytes()


@pytest.mark.parametrize("wild", WILD)
def test_wild_users_cause_no_floating_point_error(wild, silent_noise):
    """Only fit silences NumPy; stages whose input a user controls do it themselves."""
    users = replaced(crowd(), np.array(WILD[wild]))
    with np.errstate(all="raise"):
        counts_of(users, silent_noise)


def test_a_target_in_doubt_is_taken_at_its_likeliest_place(silent_noise):
    """A wide bell would lie in between; the narrow one tells more."""
    means = np.where(np.arange(400) < 205, 3.0, -3.0)
    rows = (means[:, None] + [-1.0, 1.0]).reshape(-1, 1)
    target, _ = private_target(Users(rows, np.arange(0, 801, 2)), 0.03, 0.02, 1e-3, silent_noise)
    assert 2.0 < target.middle < 6.0  # within a bin


FIRST_USERS = [0.0, 1.0, -1e9, 2.0**45, np.nan, np.inf, 5e-324]


@pytest.fixture
def answers(monkeypatch):
    """All counts, and sums in a ball over their sensitivity, that are released."""
    counts, sums = [], []
    count, mean = targets.private_counts, targets.private_mean_in_ball

    def counted(*arguments):
        counts.append(count(*arguments))
        return counts[-1]

    def averaged(vectors, centre, radius, mu, name, noise):
        found = mean(vectors, centre, radius, mu, name, noise)
        step = Lattice.fine_enough(radius, len(vectors), 1).step
        sums.append((found.value - centre) * len(vectors) / step / found.event.sensitivity)
        return found

    monkeypatch.setattr(targets, "private_counts", counted)
    monkeypatch.setattr(targets, "private_mean_in_ball", averaged)
    return counts, sums


@pytest.mark.parametrize("first", FIRST_USERS)
def test_targets_move_by_their_events(first, answers, silent_noise):
    """At equal earlier answers: the unit is that of the rest, whoever the first user is."""
    counts, sums = answers
    rest = np.random.default_rng(0).normal(3.0, 1.0, size=(200, 2, 1))
    for value in (first, 3.0):
        with np.errstate(all="ignore"):
            private_target(ragged([[value], [value]], *rest), 50.0, 50.0, 50.0, silent_noise)
    assert moved(counts[0], counts[2]) <= 1
    assert moved(counts[1], counts[3]) <= 1
    assert np.abs(sums[0] - sums[1]) <= 1 + 1e-9


@pytest.mark.parametrize("first", FIRST_USERS)
def test_the_middle_of_looks_moves_by_its_event(first, answers, monkeypatch, silent_noise):
    """At equal earlier answers; what these move by is what looks at numbers do."""
    seen = Places(np.array([50.0]), np.array([1.5]), np.array([8.0]), np.array([True]))
    monkeypatch.setattr(targets, "private_places", lambda *_: (seen, None, ()))
    rest = np.random.default_rng(0).normal(50.0, 1.0, size=(200, 2, 1))
    _, sums = answers
    for value in (first, 52.0):
        with np.errstate(all="ignore"):
            target_by_looks(
                ragged([[value], [value]], *rest), 50.0, 50.0, 50.0, silent_noise, around_zero=False
            )
    assert np.abs(sums[0] - sums[1]) <= 1 + 1e-9
    assert first != -1e9 or np.abs(sums[0] - sums[1]) > 0.99  # from one end of the ball to the other


@pytest.mark.parametrize(("centre", "spread"), [(50.0, 8.0), (-3e6, 1e6), (0.0, 1e-3)])
@pytest.mark.parametrize("later_mu", [0.1, 0.0])
def test_a_few_looks_find_targets(centre, spread, later_mu):
    """Within their size at the first look, of which nothing else is said; within a unit at the second."""
    rng = np.random.default_rng(0)
    users = ragged(*rng.normal(centre, spread, size=(400, 3, 1)))
    target, events = target_by_looks(users, 0.2, later_mu, 0.1, SeededNoise(0), around_zero=False)
    size = np.hypot(centre, spread)
    assert abs(target.middle - centre) < (0.7 * spread if later_mu else 0.6 * size)
    assert 0.3 < target.unit / spread < 3 if later_mu else target.unit < 1e-9
    assert len(events) == (1 if not later_mu else 2 if centre == 0 else 3)


def test_looks_at_targets_that_share_a_value_cost_no_more_than_they_may():
    users = ragged(*np.full((400, 2, 1), 7.0))
    target, events = target_by_looks(users, 0.3, 0.2, 0.1, SeededNoise(0), around_zero=False)
    assert sum(event.mu**2 for event in events) <= (0.3**2 + 0.2**2 + 0.1**2) * (1 + 1e-9)
    assert target.middle == pytest.approx(7.0, abs=2.0)


def test_without_an_intercept_targets_are_as_wide_as_they_are_large():
    users = ragged(*np.random.default_rng(0).normal(50.0, 1.0, size=(400, 2, 1)))
    target, events = target_by_looks(users, 0.2, 0.0, 0.0, SeededNoise(0), around_zero=True)
    assert target.middle == 0.0
    assert 25 < target.unit < 100
    assert [event.name for event in events] == ["target look"]


def test_targets_that_nobody_knows_are_taken_as_tiny():
    users = ragged(*np.random.default_rng(0).normal(50.0, 1.0, size=(20, 2, 1)))
    found = [target_by_looks(users, 0.02, 0.0, 0.0, SeededNoise(s), around_zero=False)[0] for s in range(20)]
    assert all(target.unit < 1e-9 for target in found)
    assert sum(target.middle == 0.0 for target in found) > 10


def test_a_unit_that_is_a_guess_is_taken_as_tiny():
    users = ragged(*np.random.default_rng(0).normal(5.0, 1.0, size=(20, 2, 1)))
    found = [private_target(users, 0.02, 0.02, 0.02, SeededNoise(seed))[0] for seed in range(20)]
    tiny = [target for target in found if target.unit < 1e-9]
    assert len(tiny) > 10
    assert max(abs(target.middle) for target in tiny) < 1e-9


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_a_unit_is_found_whatever_it_is(unit, spread):
    """Within a factor of about two; by pairs where users differ."""
    rng = np.random.default_rng(0)
    users = ragged(*(unit * (rng.normal(0, spread) + rng.normal(size=(4, 1))) for _ in range(1_000)))
    found, _ = private_unit(users, 0.5, SeededNoise(0))
    assert np.abs(np.log2(found / (unit * np.hypot(1, spread)))) < 1.2


@pytest.mark.parametrize("offset", [0.0, 4.0, -50.0, 300.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_targets_are_found_wherever_they_are(offset, unit):
    """Within a fifth of their spread, up to some thirty units from zero."""
    rng = np.random.default_rng(0)
    spread = max(1.0, abs(offset) / 15)
    users = ragged(*(unit * rng.normal(offset, spread, size=(4, 1)) for _ in range(2_000)))
    target, events = private_target(users, 0.05, 0.05, 0.05, SeededNoise(0))
    assert target.middle == pytest.approx(offset * unit, abs=0.2 * spread * unit)
    assert 0.4 < target.unit / (spread * unit) < 2.5
    assert [event.name for event in events] == ["target scale", "target location", "target mean"]
