"""Every private mean inside DP-SGD: the same interface, its own guarantee over all rounds."""

import numpy as np
import pytest

import userdp
from userdp.data import Users
from userdp.engines.local import local_oracle
from userdp.errors import InvalidInputError, NotConcentratedError, TooFewUsersError
from userdp.means import (
    AdaptiveClippedMean,
    BassilySunMean,
    ClippedMean,
    ConcentratedMean,
    DeletionPTR,
    FriendlyCoreMean,
    LevyMean,
)
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.optimizers.phased_erm import PhasedERM
from userdp.privacy import Budget
from userdp.problems import L2Ball, Regularized, SquaredDistance

TARGET = np.array([0.5, -0.3])
BUDGET = Budget(8.0, 1e-4)


def users_near(target=TARGET, n=2_000, spread=0.1, seed=0):
    z = target + spread * np.random.default_rng(seed).normal(size=(n, len(target)))
    return Users.from_rows(z, np.arange(n))


MEANS = {
    "clipped": (ClippedMean(2.0), 2_000, 5),
    "adaptive": (AdaptiveClippedMean(2.0), 2_000, 5),
    "deferred": (ConcentratedMean(2.0, gate="deferred"), 2_000, 5),
    "one-sided": (ConcentratedMean(2.0, gate="one-sided"), 2_000, 5),
    "gaussian": (ConcentratedMean(2.0, gate="gaussian"), 2_000, 5),
    "levy": (LevyMean(2.0, bound=8.0), 2_000, 5),
    "bassily-sun": (BassilySunMean(2.0), 2_000, 5),
    "friendly core": (FriendlyCoreMean(2.0), 2_000, 5),
    "deletions": (DeletionPTR(1.0), 16, 1),
}


@pytest.mark.parametrize("name", MEANS)
def test_every_mean_finds_the_centre_within_its_budget(name):
    mean, n, rounds = MEANS[name]
    oracle = local_oracle(SquaredDistance(), users_near(n=n))
    calibrated = mean.calibrate(n, 2, BUDGET, rounds)
    optimizer = DPSGD(rounds, 0.8, averaged_share=1 / rounds)
    solution = optimizer.run(oracle, calibrated, SeededNoise(0))
    tolerance = 0.1 if n > 100 else 2.0
    assert np.linalg.norm(solution.point - TARGET * (1 - 0.2**rounds)) < tolerance
    privacy = solution.privacy
    assert (privacy.epsilon, privacy.delta, privacy.certified, privacy.n_users) == (8.0, 1e-4, True, n)
    with pytest.raises(InvalidInputError, match="calibrated for"):
        DPSGD(rounds + 1, 0.8).run(oracle, calibrated, SeededNoise(0))


@pytest.mark.parametrize("name", ["gaussian", "levy", "bassily-sun", "friendly core"])
def test_asked_round_by_round_it_is_the_plain_loop(name, silent_noise):
    """Three lines of NumPy on exact means, with projection, ridge and an average of the last half."""
    users = users_near()
    exact = users.rows.mean(axis=0)
    theta, iterates = np.zeros(2), []
    for _ in range(4):
        theta = theta - 0.5 * (theta - exact + 0.25 * theta)
        theta = theta * min(1, 0.4 / np.linalg.norm(theta))
        iterates.append(theta)
    mean = MEANS[name][0].calibrate(2_000, 2, BUDGET, 4)
    oracle = local_oracle(Regularized(SquaredDistance(), 0.25), users, dtype=np.float64)
    solution = DPSGD(4, 0.5, L2Ball(0.4), averaged_share=0.5).run(oracle, mean, silent_noise)
    assert solution.point == pytest.approx(np.mean(iterates[-2:], axis=0), abs=2e-3)


@pytest.mark.parametrize("name", ["levy", "friendly core", "bassily-sun"])
def test_every_round_is_paid_for(name):
    """The same budget over four times the rounds: each answer has twice the noise, or more."""
    stds = []
    for rounds in (64, 256):
        session = MEANS[name][0].calibrate(20_000, 2, BUDGET, rounds).start(SeededNoise(0))
        session.answer(np.zeros((20_000, 2)))
        stds.append(session.noise_std)
    assert stds[1] >= 1.98 * stds[0]


def test_bassily_and_sun_refuse_below_their_number_of_users_and_report_it_above():
    users = users_near(n=400)
    by_hand = {"optimizer": DPSGD(200, 0.1), "epsilon": 2.0, "delta": 1e-6, "random_state": 0}
    with pytest.raises(TooFewUsersError, match=r"200 rounds .* it takes at least \d+"):
        userdp.minimize(SquaredDistance(), users, mean=BassilySunMean(2.0), **by_hand)
    shared = userdp.minimize(SquaredDistance(), users, mean=ConcentratedMean(2.0, gate="deferred"), **by_hand)
    assert shared.privacy.certified
    few = {**by_hand, "optimizer": DPSGD(2, 0.5)}
    solution = userdp.minimize(SquaredDistance(), users_near(n=2_000), mean=BassilySunMean(2.0), **few)
    assert any("sqrt(T log(1/delta))/epsilon" in line for line in solution.privacy.assumptions)


def test_deletions_refuse_with_what_they_would_cost():
    with pytest.raises(InvalidInputError, match=r"take about 10\^91 subsets a round"):
        userdp.minimize(
            SquaredDistance(),
            users_near(n=400),
            optimizer=DPSGD(5, 0.5),
            mean=DeletionPTR(2.0),
            epsilon=4.0,
            delta=1e-6,
        )


@pytest.mark.parametrize("name", ["gaussian", "bassily-sun", "friendly core"])
def test_scattered_users_are_refused_without_a_number(name):
    users = users_near()
    users.rows[:] += 100.0 * np.arange(2_000)[:, None]
    mean = MEANS[name][0].calibrate(2_000, 2, BUDGET, 3)
    with pytest.raises(NotConcentratedError) as error:
        DPSGD(3, 0.1).run(local_oracle(SquaredDistance(), users), mean, SeededNoise(0))
    assert not any(character.isdigit() for character in str(error.value))


def test_phased_erm_halves_the_users_and_shortens_the_leash():
    localization = PhasedERM(4, 1.0, 0.5, phases=3).localization(ClippedMean(1.0), 801, 2, BUDGET)
    assert [phase.n_users for phase in localization.phases] == [400, 200, 100]
    assert [phase.pull for phase in localization.phases] == [0.5, 4.0, 32.0]
    assert [phase.optimizer.step_size for phase in localization.phases] == [1 / 1.5, 1 / 5, 1 / 33]
    with pytest.raises(TooFewUsersError, match="halved"):
        PhasedERM(4, 1.0, 0.5, phases=3).localization(ClippedMean(1.0), 7, 2, BUDGET)


def test_phased_erm_is_pulled_towards_where_a_phase_starts(silent_noise, monkeypatch):
    """Without noise phase i ends at the mean of its users and its start, weighted 1 to pull."""
    monkeypatch.setattr("userdp.training.noise_source", lambda _: silent_noise)
    users = users_near(spread=0.0)
    solution = userdp.minimize(
        SquaredDistance(),
        users,
        optimizer=PhasedERM(60, 1.0, 0.5, phases=2),
        mean=ClippedMean(4.0),
        epsilon=8.0,
        delta=1e-4,
        start=[2.0, 0.0],
    )
    first = (TARGET + 0.5 * np.array([2.0, 0.0])) / 1.5
    assert solution.point == pytest.approx((TARGET + 4 * first) / 5, abs=2e-3)
    assert solution.privacy.n_users == 2_000
