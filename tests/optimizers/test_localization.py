"""Algorithm 4: disjoint phases, each from the last one's answer, one guarantee for all."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from userdp.data import Users
from userdp.engines.local import local_oracle
from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means import ClippedMean, ConcentratedMean, LevyMean
from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.optimizers import DPSGD, Localization, Phase, PhasedERM
from userdp.planning.rates import phase_sizes
from userdp.privacy import Budget
from userdp.problems import SquaredDistance

D, SIZES = 2, (100, 200, 400)


def users_at(centre, n=800, spread=0.1, seed=0):
    z = np.asarray(centre) + spread * np.random.default_rng(seed).normal(size=(n, D))
    return Users.from_rows(z, np.arange(n))


BUDGET, CLIPPED = Budget(4.0, 1e-6), ClippedMean(20.0)


def phases(budgets=(BUDGET,) * 3, mean=CLIPPED, sizes=SIZES, rounds=3):
    return [
        Phase(n, DPSGD(rounds, 0.5), mean.calibrate(n, D, budget, rounds))
        for n, budget in zip(sizes, budgets, strict=True)
    ]


class Recording:
    """Lay out users, and remember who was chosen."""

    def __init__(self, users):
        self.users, self.chosen = users, []

    def __call__(self, i, chosen):
        assert i == len(self.chosen)
        self.chosen.append(chosen)
        return local_oracle(SquaredDistance(), self.users.take(chosen))


def test_phases_are_disjoint_and_random():
    orders = []
    for noise in (SeededNoise(0), SecureNoise()):
        oracle_of = Recording(users_at([1.0, -2.0]))
        Localization(phases()).run(oracle_of, 800, noise)
        assert [len(chosen) for chosen in oracle_of.chosen] == list(SIZES)
        together = np.concatenate(oracle_of.chosen)
        assert len(set(together.tolist())) == sum(SIZES)
        assert set(together.tolist()) <= set(range(800))
        orders.append(together.tolist())
    assert orders[0] != orders[1]


def test_planned_sizes_double_and_fit():
    for n, m in ((1_000, 100), (777, 3), (10**6, 10)):
        sizes = phase_sizes(n, m)
        assert sum(sizes) <= n
        assert len(sizes) == np.ceil(np.log(np.log(n * m)))
        for small, large in pairwise(sizes):
            assert large // 2 == small


def test_each_phase_starts_where_the_last_one_ended(silent_noise):
    """Three rounds at step 1/2 leave (1/8 + 1/4 + 1/2)/3 of the distance in the average."""
    centre = np.array([8.0, 0.0])
    solution = Localization(phases()).run(Recording(users_at(centre, spread=0.0)), 800, silent_noise)
    left = (1 / 2 + 1 / 4 + 1 / 8) / 3
    assert solution.point == pytest.approx(centre * (1 - left**3), abs=1e-2)


def test_the_statement_is_for_all_users_and_the_costliest_phase():
    oracle_of = Recording(users_at([1.0, -2.0]))
    solution = Localization(phases()).run(oracle_of, 800, SeededNoise(0))
    assert (solution.privacy.epsilon, solution.privacy.delta) == (4.0, 1e-6)
    assert solution.privacy.n_users == 800
    assert "3 phases on disjoint users" in str(solution.privacy)
    unequal = phases((Budget(4.0, 1e-6), Budget(1.0, 1e-5), Budget(2.0, 1e-7)))
    statement = Localization(unequal).run(Recording(users_at([1.0, -2.0])), 800, SeededNoise(0)).privacy
    assert (statement.epsilon, statement.delta) == (4.0, 1e-5)
    first = unequal[0].mean.statement(seeded=True)
    assert statement.spent == first.spent
    assert statement.mu == first.mu


def test_one_uncertified_phase_makes_the_whole_uncertified():
    certified, paper = phases(sizes=(300, 400), budgets=(Budget(9.0, 1e-6),) * 2), []
    mean = ConcentratedMean(5.0, calibration="paper").calibrate(300, D, Budget(9.0, 1e-6), 3)
    paper = [dataclasses.replace(certified[0], mean=mean), certified[1]]
    assert Localization(certified).run(Recording(users_at([0.0, 0.0])), 800, SeededNoise(0)).privacy.certified
    assert not Localization(paper).run(Recording(users_at([0.0, 0.0])), 800, SeededNoise(0)).privacy.certified


def test_a_refusing_phase_releases_nothing():
    scattered = users_at([0.0, 0.0], spread=100.0)
    concentrated = phases(mean=ConcentratedMean(1.0, gate="deferred"), sizes=(200, 200, 400))
    with pytest.raises(NotConcentratedError):
        Localization(concentrated).run(Recording(scattered), 800, SeededNoise(0))


def test_a_halting_phase_ends_the_run_where_it_started():
    halting = ConcentratedMean(1e-3, calibration="paper").calibrate(400, D, Budget(9.0, 1e-6), 3)
    first = phases(sizes=(400,), budgets=(Budget(9.0, 1e-6),))[0]
    never = dataclasses.replace(first, n_users=100)
    run = Localization([first, dataclasses.replace(first, mean=halting), never])
    oracle_of = Recording(users_at([8.0, 0.0], n=900))
    solution = run.run(oracle_of, 900, SeededNoise(0))
    assert solution.halted
    assert len(oracle_of.chosen) == 2
    assert np.linalg.norm(solution.point - [8.0, 0.0]) < 3  # what the first phase found


def test_too_few_users_or_no_phases():
    with pytest.raises(InvalidInputError, match="the phases take 700 users, there are 699"):
        Localization(phases()).run(Recording(users_at([0.0, 0.0], n=699)), 699, SeededNoise(0))
    with pytest.raises(InvalidInputError, match="at least one phase"):
        Localization([])


class Heard:
    """A calibrated mean that writes down what it was asked and what it answered, round by round."""

    def __init__(self, mean):
        self.mean, self.rounds, self.heard = mean, mean.rounds, []

    def start(self, noise):
        session, heard = self.mean.start(noise), self.heard

        class Session:
            halted = False

            def answer(self, vectors):
                heard.append((vectors, session.answer(vectors)))
                return heard[-1][1]

            def finish(self):
                return session.finish()

        return Session()


def one_user_replaced(phases, user, seed=0):
    """Run on users and on their neighbour with the same noise; return points, who was chosen, what was heard."""
    z = np.random.default_rng(0).normal([1.0, -2.0], 0.1, size=(800, D))
    other = z.copy()
    other[user] = [15.0, 15.0]
    points, chosen, heard = [], [], []
    for rows in (z, other):
        recorded = [dataclasses.replace(phase, mean=Heard(phase.mean)) for phase in phases]
        oracle_of = Recording(Users.from_rows(rows, np.arange(800)))
        points.append(Localization(recorded).run(oracle_of, 800, SeededNoise(seed)).point)
        chosen.append(oracle_of.chosen)
        heard.append([phase.mean.heard for phase in recorded])
    return points, chosen, heard


LEVY = LevyMean(radius=1.0, bound=32.0)
PHASED = PhasedERM(rounds=3, smoothness=1.0, pull=0.1, phases=2)


@pytest.mark.parametrize(
    "phases", [phases(), list(PHASED.localization(LEVY, 800, D, Budget(9.0, 1e-3)).phases)]
)
def test_a_replaced_user_is_heard_in_one_phase_alone(phases):
    """Others' phases are the same before it; after it they hear of that user through where they start alone."""
    chosen = one_user_replaced(phases, 0)[1][0]
    left_out = sorted(set(range(800)) - set(np.concatenate(chosen).tolist()))
    points, _, _ = one_user_replaced(phases, left_out[0])
    np.testing.assert_array_equal(*points)
    for i, own in enumerate(chosen):
        points, both, heard = one_user_replaced(phases, own[5])
        for one, other in zip(*both, strict=True):
            np.testing.assert_array_equal(one, other)  # who sits where does not follow the data
        assert not np.array_equal(*points)
        for j, (one, other) in enumerate(zip(*heard, strict=True)):
            assert len(one) == len(other) == 3
            if j < i:
                for same in zip(one, other, strict=True):
                    for x, y in zip(*same, strict=True):
                        np.testing.assert_array_equal(x, y)
            elif j == i:  # asked at the same point first: one row differs
                assert np.flatnonzero((one[0][0] != other[0][0]).any(axis=1)).tolist() == [5]
            else:  # gradients theta - z: all rows differ by what theta does
                for (x, _), (y, _) in zip(one, other, strict=True):
                    np.testing.assert_allclose(x - y, np.broadcast_to((x - y)[0], x.shape), atol=1e-5)
