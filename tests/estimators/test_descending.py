"""Where the rounds of a descent point to."""

from dataclasses import replace

import numpy as np
import pytest

from userdp.data import Users
from userdp.engines.local import local_oracle
from userdp.estimators.descending import where_rounds_point
from userdp.means import ClippedMean
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.planning.descent import Group, aim, descent
from userdp.privacy import Budget
from userdp.problems import SquaredDistance

N, D, STEPS = 400, 3, 8.0
START = np.array([3.0, -2.0, 1.0])


def plan(rounds):
    """Choose a descent whose step goes an eighth of the way."""
    group = (Group(np.ones(D), 1.0, 1.0),)
    chosen = descent(group, aim(group, 0.01, 1.0), curvature=1.0, kept=1.0, rounds=rounds)
    return replace(chosen, steps_ahead=STEPS - 1)


def walk(rounds, noise, share=1.0):
    x = np.random.default_rng(0).normal(size=(N, D))
    oracle = local_oracle(SquaredDistance(), Users.from_rows(x, np.arange(N)), dtype=np.float64)
    mean = ClippedMean(20.0).calibrate(N, D, Budget(8.0, 1e-6), rounds)
    optimizer = DPSGD(rounds, 1 / STEPS, averaged_share=share)
    return optimizer.run(oracle, mean, noise, START), x.mean(axis=0)


@pytest.mark.parametrize("rounds", [1, 3, 40])
def test_every_round_of_a_quadratic_loss_points_at_the_answer(silent_noise, rounds):
    """However few they are, and however far they come."""
    solution, answer = walk(rounds, silent_noise)
    assert where_rounds_point(solution, START, plan(rounds)) == pytest.approx(answer, abs=1e-2)
    if rounds < STEPS:
        assert np.abs(solution.point - answer).max() > 0.5


def test_no_round_s_budget_is_lost():
    """With noise it is as if all were spent on one gradient; an average of late iterates is noisier."""
    rounds = 64
    kinds = {"all": [], "late": []}
    for seed in range(200):
        solution, answer = walk(rounds, SeededNoise(seed))
        kinds["all"].append(where_rounds_point(solution, START, plan(rounds)) - answer)
        kinds["late"].append(walk(rounds, SeededNoise(seed), 0.75)[0].point - answer)
    of_one_gradient = ClippedMean(20.0).calibrate(N, D, Budget(8.0, 1e-6), 1).start(SeededNoise(0)).noise_std
    spread = {kind: float(np.std(errors)) for kind, errors in kinds.items()}
    assert spread["all"] == pytest.approx(of_one_gradient, rel=0.15)
    assert spread["late"] > 1.03 * spread["all"]
