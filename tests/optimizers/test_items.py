"""Item-level methods under group privacy: a user is m slots, whatever they hold."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import userdp
from userdp.data import Users
from userdp.engines import LocalEngine
from userdp.errors import InvalidInputError
from userdp.means.clipped import clip_to_lattice_ball
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import ItemDPSGD, LocalizedSGD
from userdp.optimizers.item_dp_sgd import grouped_clipped_mean
from userdp.optimizers.items import item_slots
from userdp.optimizers.localized_sgd import _items, _one_pass
from userdp.privacy import Budget
from userdp.privacy.accounting import delta_of
from userdp.problems import Absolute, JaxLoss, L2Ball, Linear, Logistic, Squared, SquaredDistance

BUDGET = Budget(2.0, 1e-6)
BALL = L2Ball(1.0)


def ragged(seed=0, n=50):
    rng = np.random.default_rng(seed)
    items = rng.integers(1, 7, n)
    return Users.from_rows(rng.normal(size=(items.sum(), 2)), np.repeat(np.arange(n), items))


def test_slots_belong_to_users_and_are_as_many_whoever_they_are():
    users = ragged()
    slots = item_slots(users, 4, SeededNoise(0))
    assert slots.n_users == len(slots.rows) == 200
    for j in range(users.n_users):
        own = users.rows[users.offsets[j] : users.offsets[j + 1]]
        held = slots.rows[4 * j : 4 * (j + 1)]
        held = held[~np.isnan(held[:, 0])]
        assert len(held) == min(4, len(own))
        assert {tuple(row) for row in held} <= {tuple(row) for row in own}


def test_a_user_moves_the_sum_of_clipped_rows_by_m_times_a_row_and_no_more():
    n, m = 6, 3
    mean = grouped_clipped_mean(1.0, n, m, 2, BUDGET, 1)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n * m, 2))
    used = 0.0
    for scale in (0.1, 1.0, 1e9, np.nan):
        for new in (np.array([1.0, 0.0]), rng.normal(size=(m, 2))):
            one, other = rows.copy(), rows.copy()
            one[:m], other[:m] = -scale * new, scale * new
            sums = [clip_to_lattice_ball(x, mean.centre, mean.lattice).sum(axis=0) for x in (one, other)]
            used = max(used, np.linalg.norm(sums[0] - sums[1]) / mean.event.sensitivity)
    assert 0.999 < used <= 1


def test_both_budgets_fit_and_do_not_with_a_tenth_less_noise():
    mean = grouped_clipped_mean(1.0, 100, 5, 3, BUDGET, 20)
    assert delta_of((mean.event,), 2.0) <= 1e-6
    assert delta_of((replace(mean.event, scale=0.9 * mean.event.scale),), 2.0) > 1e-6
    one_row = grouped_clipped_mean(1.0, 100, 1, 3, BUDGET, 20)
    assert mean.event.scale == pytest.approx(5 * one_row.event.scale, rel=1e-6)


def asked_scale(max_items, silent_noise):
    optimizer = LocalizedSGD(1.0, BALL)
    optimizer.run(SquaredDistance(), ragged(), max_items=max_items, budget=BUDGET, noise=silent_noise)
    scales = {scale for law, scale in silent_noise.asked if law == "gaussian"}
    silent_noise.asked.clear()
    assert len(scales) == 1
    return scales.pop()


def test_the_noise_of_localized_sgd_grows_with_the_rows_of_a_user(silent_noise):
    assert asked_scale(6, silent_noise) == pytest.approx(6 * asked_scale(1, silent_noise), rel=1e-6)


def passes(loss, optimizer, rows, targets, step):
    """The average of one pass over all rows, computed as a phase computes it."""
    slots = Users(rows, np.arange(len(rows) + 1), targets)
    with jax.enable_x64(True):
        items = _items(slots, np.arange(len(rows)), optimizer.feature_bound)
        start = jnp.full(rows.shape[1], 0.1)
        return np.asarray(_one_pass(optimizer, loss, items, 0, len(rows), step, 0.0, start))


@pytest.mark.parametrize(
    ("loss", "step", "least"),
    [
        (Linear(), 0.01, 0.9),
        (SquaredDistance(), 2.0 / 1.0, 0.1),
        (Logistic(), 2 / (0.25 * 4), 0.01),
        (Squared(), 2 / 4.0, 0.1),
    ],
)
def test_replacing_a_row_moves_an_average_by_no_more_than_its_sensitivity(loss, step, least):
    """The largest step that is allowed, rows far beyond the bounds, empty slots; nearly attained for a linear loss."""
    rng = np.random.default_rng(0)
    optimizer = LocalizedSGD(0.5, L2Ball(1.0), feature_bound=2.0)
    used = 0.0
    for trial in range(60):
        N = int(rng.integers(3, 30))
        rows = rng.normal(size=(N, 3)) * rng.choice([0.1, 1.0, 10.0, 1e50], size=(N, 1))
        targets = rng.choice([0.0, 1.0], N) * rng.choice([1.0, 1e6]) if loss is not Linear() else None
        rows[rng.random(N) < 0.1] = np.nan
        if trial < 5:
            rows, targets = np.zeros((N, 3)), np.zeros(N)
            rows[0] = [3.0, 0.0, 0.0]
        other, other_targets = rows.copy(), targets.copy()
        place = 0 if trial < 5 else int(rng.integers(N))
        other[place] = rng.choice([-rows[place], rng.normal(size=3) * 100, np.full(3, np.nan)])
        other_targets[place] = 1 - targets[place]
        averages = [passes(loss, optimizer, x, y, step) for x, y in ((rows, targets), (other, other_targets))]
        moved = np.linalg.norm(averages[0] - averages[1])
        bound = optimizer.row_sensitivity(step, N, 3)
        assert moved <= bound
        used = max(used, moved / bound)
    assert used > least


def test_a_step_beyond_the_limit_would_break_the_bound():
    """Why it is refused: at 3/beta every later row doubles what one row changed."""
    rows, targets = np.ones((10, 1)), np.zeros(10)
    optimizer = LocalizedSGD(1e3, L2Ball(100.0), feature_bound=1.0)
    other = targets.copy()
    other[0] += 1e-3
    ends = [passes(Squared(), optimizer, rows, y, 3.0) for y in (targets, other)]
    assert abs(ends[0] - ends[1]) > 10 * 3.0 * 1e-3
    ends = [passes(Squared(), optimizer, rows, y, 2.0) for y in (targets, other)]
    assert abs(ends[0] - ends[1]) <= 2.0 * 1e-3
    with pytest.raises(InvalidInputError, match="at most 8/smoothness"):
        replace(optimizer, step_size=8.1).run(
            Squared(), Users(rows, np.arange(11), targets), max_items=1, budget=BUDGET, noise=SeededNoise(0)
        )


@pytest.mark.parametrize(
    "optimizer",
    [ItemDPSGD(30, 0.2, clip=3.0, domain=BALL), LocalizedSGD(3.0, BALL)],
    ids=["dp-sgd", "localized"],
)
def test_both_find_a_mean_and_state_a_user_s_guarantee(optimizer):
    rng = np.random.default_rng(0)
    z = np.array([0.5, -0.3]) + rng.normal(size=(8_000, 2))
    users = Users.from_rows(z, np.repeat(np.arange(4_000), 2))
    run = {"optimizer": optimizer, "epsilon": 4.0, "delta": 1e-6, "random_state": 0}
    solution = userdp.minimize(SquaredDistance(), users, **run, max_items=2)
    assert np.linalg.norm(solution.point - [0.5, -0.3]) < 0.15
    privacy = solution.privacy
    assert (privacy.epsilon, privacy.delta, privacy.n_users, privacy.certified) == (4.0, 1e-6, 4_000, True)
    assert any("at most 2 rows" in line for line in privacy.assumptions)
    for wrong in (
        {},
        {"max_items": 2, "min_items": 2},
        {"max_items": 2, "mean": userdp.means.ClippedMean(1.0)},
    ):
        with pytest.raises(InvalidInputError, match="give max_items"):
            userdp.minimize(SquaredDistance(), users, **run, **wrong)
    with pytest.raises(InvalidInputError, match="leave engine out"):
        userdp.minimize(SquaredDistance(), users, **run, max_items=2, engine=LocalEngine(device="gpu"))
    with pytest.raises(InvalidInputError, match="groups go with a plan or with DPSGD"):
        userdp.minimize(SquaredDistance(), users, **run, max_items=2, group_size=2)


@pytest.mark.parametrize("loss", [Absolute(), Logistic(), JaxLoss(lambda theta, z: theta @ z)])
def test_losses_without_a_proof_are_refused(loss):
    """Not smooth; smooth only for bounded rows; of no known form."""
    users = Users.from_rows(np.zeros((4, 2)), np.arange(4), np.zeros(4))
    with pytest.raises(InvalidInputError, match="localized SGD"):
        LocalizedSGD(1.0, BALL).run(loss, users, max_items=1, budget=BUDGET, noise=SeededNoise(0))
