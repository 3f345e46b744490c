"""The stages that see users' gradients, on neighbouring users."""

import numpy as np
import pytest

from tests.estimators.tables import WILD, ragged, replaced
from userdp.engines.interface import LocalEngine
from userdp.engines.shards import InTurn, Shard, sharded_oracle
from userdp.estimators import gradients, votes
from userdp.means.lattice import Lattice
from userdp.means.votes import COUNT_RESOLUTION
from userdp.mechanisms.noise import SeededNoise
from userdp.problems import Squared

D = 3
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
        gradients.private_norm(oracle, THETA, D, 1.0, silent_noise)
    moves = distances([found.counts * COUNT_RESOLUTION for found in recorded], recorded[0].event.sensitivity)
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
def test_a_typical_norm_is_a_median(typical):
    """Gradients of users of one row at the origin: their rows times their targets."""
    sizes = np.random.default_rng(0).lognormal(0, 0.5, size=(3_000, 1, 1))
    users = ragged(*(sizes * np.array([0.0, 1.0, 1.0])), targets=np.full((3_000, 1), typical))
    norm, event = gradients.private_norm(oracle_of(users), np.zeros(D), 2, 0.1, SeededNoise(0))
    assert norm == pytest.approx(np.sqrt(2) * typical, rel=0.3)
    assert event.mu <= 0.1


def test_without_evidence_a_norm_is_the_expected_one():
    users = ragged(*np.full((20, 1, D), np.nan), targets=np.zeros((20, 1)))
    for n_coordinates in (1, 100):
        norm, _ = gradients.private_norm(oracle_of(users), THETA, n_coordinates, 1e-3, SeededNoise(0))
        assert 0.05 < norm / np.sqrt(n_coordinates) < 2


def test_slopes_are_those_of_the_loss(silent_noise):
    oracle, directions = oracle_of(crowd(200)), np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0]])
    found = gradients.private_slopes(oracle, THETA, directions, 100.0, 1e6, silent_noise)
    means = np.nanmean(oracle.evaluate(THETA), axis=0)
    assert found.value == pytest.approx(directions @ means, rel=0.01, abs=1e-3)


def test_shards_answer_as_one_machine_does():
    users = crowd()

    def in_turn(sources, loss, has_targets):
        return InTurn([Shard(source, loss, has_targets, held=True) for source in sources])

    shards = sharded_oracle(Squared(), users, in_turn, n_shards=3)
    oracles = oracle_of(users), shards
    assert oracles[0].evaluate(THETA).tobytes() == shards.evaluate(THETA).tobytes()
    norms = [gradients.private_norm(oracle, THETA, D, 1.0, SeededNoise(0)) for oracle in oracles]
    assert norms[0] == norms[1]
    pilots = [gradients.private_gradient(oracle, THETA, 0.3, 1.0, SeededNoise(0)) for oracle in oracles]
    assert pilots[0].value.tobytes() == pilots[1].value.tobytes()


@pytest.mark.parametrize("d", [1, 3, 17, 200])
def test_norms_and_slopes_are_bit_for_bit_functions_of_their_user(d):
    rng = np.random.default_rng(d)
    vectors, ways = rng.lognormal(0, 5, size=(40, d)), rng.normal(size=(2, d))
    for question in (gradients._norms, lambda some: gradients._slopes(some, ways)):
        together = question(vectors)
        for j in range(len(vectors)):
            assert question(vectors[j : j + 1])[0].tobytes() == together[j].tobytes()
            assert question(vectors[: j + 1])[j].tobytes() == together[j].tobytes()
