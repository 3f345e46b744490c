"""The stages that see users' gradients, on neighbouring users; and weighted coordinates."""

import numpy as np
import pytest

from tests.estimators.tables import WILD, ragged, replaced
from userdp.engines.interface import LocalEngine
from userdp.engines.shards import InTurn, Shard, sharded_oracle
from userdp.estimators import gradients, votes
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import SeededNoise
from userdp.problems import Squared

D = 3
PARTS = np.array([[True, True, False], [False, False, True]])
THETA = np.array([0.5, -1.0, 0.25])


def crowd(n=30, seed=0):
    rng = np.random.default_rng(seed)
    users = ragged(
        *(rng.normal(size=(4, D)) for _ in range(n)), targets=[rng.normal(size=4) for _ in range(n)]
    )
    return users


def oracle_of(users):
    return LocalEngine().oracle(Squared(), users)


def neighbours():
    """Oracles of users of whom the first has wild rows, of one kind after the other."""
    users = crowd()
    for rows in [*WILD.values(), np.full((2, D), 1e8), np.full((2, D), 1e-4)]:
        for target in (1e9, -1e9):
            yield oracle_of(replaced(users, np.array(rows), np.full(len(rows), target)))
    yield oracle_of(users)


def distances(points, sensitivity):
    return [np.linalg.norm(one - two) / sensitivity for one in points for two in points]


def test_votes_on_norms_move_by_the_event_s_sensitivity(monkeypatch, silent_noise):
    recorded = []
    count = votes.private_counts

    def record(*arguments):
        recorded.append(count(*arguments))
        return recorded[-1]

    monkeypatch.setattr(gradients, "private_counts", record)
    for oracle in neighbours():
        gradients.private_norms(oracle, THETA, PARTS, 1.0, silent_noise)
    moves = distances(
        [found.counts * votes.COUNT_RESOLUTION for found in recorded], recorded[0].event.sensitivity
    )
    assert 0.999 < max(moves) <= 1


def test_a_pilot_moves_by_the_event_s_sensitivity(silent_noise):
    found = [gradients.private_gradient(oracle, THETA, 0.01, 1.0, silent_noise) for oracle in neighbours()]
    n, lattice = oracle_of(crowd()).n_users, Lattice.fine_enough(0.01, 30, D)
    moves = distances([one.value * n / lattice.step for one in found], found[0].event.sensitivity)
    assert 0.9 < max(moves) <= 1 + 1e-9


@pytest.mark.parametrize("directions", [np.eye(D)[-1:], np.eye(D)[1:], np.array([[0.6, 0.0, 0.8]])])
def test_slopes_move_by_the_event_s_sensitivity(directions, silent_noise):
    sums, radius, q = [], 0.01, len(directions)
    for oracle in neighbours():
        found = gradients.private_slopes(oracle, THETA, directions, radius, 1.0, silent_noise)
        sums.append(found.value * oracle.n_users / Lattice.fine_enough(radius, oracle.n_users, q).step)
    event = gradients.slopes_event(30, 1.0, q)
    assert found.event == event
    assert 0.9 < max(distances(sums, event.sensitivity)) <= 1 + 1e-9


@pytest.mark.parametrize("typical", [0.05, 0.7, 3.0])
def test_typical_norms_are_medians(typical):
    """Gradients of users of one row with target 0 at a theta that predicts 1: the rows themselves."""
    rng = np.random.default_rng(0)
    others = typical * rng.lognormal(0, 0.5, size=(3_000, 1, 1)) * np.array([0.0, 1.0, 1.0])
    users = ragged(*(np.array([1.0, 0.0, 0.0]) + others), targets=np.zeros((3_000, 1)))
    parts = np.array([[True, False, False], [False, True, True]])
    norms, event = gradients.private_norms(
        oracle_of(users), np.array([1.0, 0.0, 0.0]), parts, 0.1, SeededNoise(0)
    )
    assert norms == pytest.approx([1.0, np.sqrt(2) * typical], rel=0.3)
    assert event.mu <= 0.1


def test_without_evidence_norms_are_the_expected_ones():
    users = ragged(*np.full((20, 1, D), np.nan), targets=np.zeros((20, 1)))
    norms, _ = gradients.private_norms(oracle_of(users), THETA, PARTS, 1e-3, SeededNoise(0))
    assert ((norms > 0.05) & (norms < 2)).all()


def test_slopes_are_those_of_the_loss(silent_noise):
    oracle, directions = oracle_of(crowd(200)), np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0]])
    found = gradients.private_slopes(oracle, THETA, directions, 100.0, 1e6, silent_noise)
    means = np.nanmean(oracle.evaluate(THETA), axis=0)
    assert found.value == pytest.approx(directions @ means, rel=0.01, abs=1e-3)


def test_weighted_coordinates_are_those_of_scaled_features():
    users, weights = crowd(), np.array([1.0, 0.25, 0.5])
    oracle = oracle_of(users)
    scaled = oracle_of(type(users)(users.rows * weights, users.offsets, users.targets))
    found = oracle.weighted(weights).evaluate(THETA / weights)
    assert found == pytest.approx(scaled.evaluate(THETA / weights), rel=1e-5, abs=1e-6)
    assert found.tobytes() == (oracle.evaluate(THETA) * weights).tobytes()


def test_shards_answer_as_one_machine_does():
    users, weights = crowd(), np.array([1.0, 0.25, 0.5])

    def in_turn(sources, loss, has_targets):
        return InTurn([Shard(source, loss, has_targets, held=True) for source in sources])

    shards = sharded_oracle(Squared(), users, in_turn, n_shards=3)
    for ask in (lambda oracle: oracle, lambda oracle: oracle.weighted(weights)):
        one, many = ask(oracle_of(users)), ask(shards)
        assert one.evaluate(THETA).tobytes() == many.evaluate(THETA).tobytes()
        pilots = [gradients.private_gradient(o, THETA, 0.3, 1.0, SeededNoise(0)) for o in (one, many)]
        assert pilots[0].value.tobytes() == pilots[1].value.tobytes()


@pytest.mark.parametrize("d", [1, 3, 17, 200])
def test_norms_and_slopes_are_bit_for_bit_functions_of_their_user(d):
    rng = np.random.default_rng(d)
    vectors, ways = rng.lognormal(0, 5, size=(40, d)), rng.normal(size=(2, d))
    parts = np.array([rng.random(d) < 0.5, np.ones(d, dtype=bool)])
    for question, argument in ((gradients._part_norms, parts), (gradients._slopes, ways)):
        together = question(vectors, argument)
        for j in range(len(vectors)):
            assert question(vectors[j : j + 1], argument)[0].tobytes() == together[j].tobytes()
            assert question(vectors[: j + 1], argument)[j].tobytes() == together[j].tobytes()
