"""Magnitudes of matched users: what they measure, and how much one user can move them."""

import numpy as np
import pytest

from tests.estimators.tables import WILD, crowd, moved, ragged, replaced
from userdp.estimators import pairs, votes
from userdp.estimators.pairs import are_worth_it, pair_magnitudes
from userdp.estimators.per_user import StreamedVectors, chosen_users
from userdp.means.votes import nearest_powers_of_four
from userdp.mechanisms.noise import SeededNoise


def magnitudes(users, seed=0):
    return pair_magnitudes(users, SeededNoise(seed))


def test_a_pair_tells_the_mean_square_difference_of_its_rows():
    one, other = np.array([[1.0], [2.0], [6.0]]), np.array([[10.0], [4.0]])
    found = magnitudes(ragged(one, other))
    assert found.shape == (1, 1)
    assert found[0, 0] ** 2 == pytest.approx(((one - other.T) ** 2).mean() / 2)


def test_where_a_column_lies_does_not_matter():
    users = crowd()
    shifted = ragged(
        *(users.rows[a:b] + 2.0**20 for a, b in zip(users.offsets, users.offsets[1:], strict=False))
    )
    assert magnitudes(shifted) == pytest.approx(magnitudes(users), rel=1e-6, abs=1e-6)


def test_one_replaced_user_changes_the_votes_of_one_pair():
    """The matching is the same for the same secret numbers: those of the two tables can be coupled so."""
    users = crowd()
    for seed in range(5):
        for rows in [*WILD.values(), [[7.0] * 3]]:
            one, two = (
                nearest_powers_of_four(magnitudes(table, seed=seed))
                for table in (users, replaced(users, np.array(rows)))
            )
            assert (one != two).any(axis=1).sum() <= 1


def test_another_id_changes_who_stands_where_and_still_one_pair(monkeypatch):
    """A replaced user who moves from the first place to the last: the same matching of people, one other pair."""
    rng = np.random.default_rng(0)
    people = [rng.lognormal(0, 3, size=(3, 2)) for _ in range(12)]
    here, there = ragged(*people), ragged(*people[1:], np.full((2, 2), 7.0))
    order = rng.permutation(12)
    elsewhere = np.where(order == 0, 11, order - 1)  # where the same people stand there
    found = []
    for users, places in ((here, order), (there, elsewhere)):
        noise = SeededNoise(0)
        monkeypatch.setattr(noise, "permutation", lambda n, places=places: places)
        found.append(nearest_powers_of_four(pair_magnitudes(users, noise)))
    assert (found[0] != found[1]).any(axis=1).sum() == 1


def test_counts_of_pairs_move_by_the_event_s_sensitivity(silent_noise):
    """Within it whatever the user's rows are, and by as much: half of it would not do."""
    users, found = crowd(n=14), []
    for rows in [*WILD.values(), [[2.0**30] * 3], [[2.0**-30] * 3, [2.0**36] * 3], [[1.0] * 3]]:
        ballot = nearest_powers_of_four(magnitudes(replaced(users, np.array(rows))))
        found.append(votes.private_counts(ballot, votes.POWERS, 1.0, "scales", silent_noise))
    moves = [moved(one, other) for one in found for other in found]
    assert 1 - 1e-9 < max(moves) <= 1


def test_every_user_is_matched_once_and_the_odd_one_not_at_all(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        pairs, "chosen_users", lambda vectors, places: drawn.append(places) or vectors[places]
    )
    assert len(magnitudes(crowd(n=13))) == 6
    assert len(np.unique(drawn[0])) == 12


def test_who_is_matched_is_drawn_anew():
    users = crowd(n=200)
    assert not np.array_equal(magnitudes(users, seed=0), magnitudes(users, seed=1), equal_nan=True)


def test_no_more_than_some_users_are_matched(monkeypatch):
    monkeypatch.setattr(pairs, "MOST_MATCHED", 50)
    assert len(magnitudes(crowd(n=200))) == 25


def test_null_users_and_equal_ones_abstain():
    users = ragged(np.ones((2, 2)), np.ones((3, 2)))
    assert np.isnan(magnitudes(users)).all()
    assert np.isnan(magnitudes(replaced(users, np.full((1, 2), np.nan)))).all()


def test_users_in_parts_are_matched_alike():
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    places = np.random.default_rng(1).permutation(30)[:20]
    streamed = StreamedVectors(30, lambda: iter(np.split(vectors, [7, 8, 21])))
    assert np.array_equal(chosen_users(streamed, places), vectors[places])


def test_pairs_need_enough_users():
    assert are_worth_it(2_000, 0.05)
    assert not are_worth_it(200, 0.05)
    assert not are_worth_it(1, 10.0)
