"""userdp.minimize: data, plan and randomness together."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import userdp
from userdp.data import Users
from userdp.engines import LocalEngine
from userdp.errors import InvalidInputError, NotConcentratedError, PrivacyWarning, TooFewUsersError
from userdp.means import ClippedMean, ConcentratedMean
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD, Localization
from userdp.problems import (
    Absolute,
    Hinge,
    JaxLoss,
    L2Ball,
    Logistic,
    Regularized,
    SampledSmoothing,
    SmoothedGLM,
    SquaredDistance,
)
from userdp.training import smoothed

N, M, D = 400, 5, 3
TARGET = np.array([0.5, -0.3, 0.1])


def make_users(n=N, seed=0, items=None):
    rng = np.random.default_rng(seed)
    items = np.full(n, M) if items is None else items
    z = TARGET + rng.normal(size=(items.sum(), D)) / np.sqrt(D)
    return Users.from_rows(z, np.repeat(np.arange(n), items))


USERS = make_users()
BY_HAND = {
    "optimizer": DPSGD(10, 0.3),
    "mean": ConcentratedMean(4.0, gate="deferred"),
    "epsilon": 4.0,
    "delta": 1e-6,
}


def make_plan(**changes):
    numbers = {
        "n_users": N,
        "items_per_user": M,
        "n_features": D,
        "epsilon": 4.0,
        "delta": 1e-6,
        "smoothness": 1.0,
        "max_rounds": 10,
    }
    return userdp.plan(**{**numbers, **changes})


def test_a_seed_repeats_and_says_so_and_the_default_does_not():
    one, two, other = (
        userdp.minimize(SquaredDistance(), USERS, **BY_HAND, random_state=seed) for seed in (1, 1, 2)
    )
    assert one.point.tobytes() == two.point.tobytes() != other.point.tobytes()
    assert one.privacy.seeded
    never_halts = BY_HAND | {"mean": ClippedMean(4.0)}
    secure = [userdp.minimize(SquaredDistance(), USERS, **never_halts) for _ in range(2)]
    assert not secure[0].privacy.seeded
    assert secure[0].point.tobytes() != secure[1].point.tobytes()


def test_a_plan_runs_and_its_statement_is_its_budget():
    plan = make_plan()
    solution = userdp.minimize(SquaredDistance(), USERS, plan=plan, random_state=0)
    assert np.linalg.norm(solution.point - TARGET) < 0.5
    privacy = solution.privacy
    assert (privacy.epsilon, privacy.delta, privacy.n_users, privacy.certified) == (4.0, 1e-6, N, True)


def test_a_plan_for_groups_takes_them_for_users():
    """The answer is that of DPSGD with the plan's numbers on the same groups, and the statement names the users."""
    plan = make_plan(n_users=N // 2, items_per_user=2 * M)
    solution = userdp.minimize(SquaredDistance(), USERS, plan=plan, group_size=2, random_state=0)
    assert (solution.privacy.epsilon, solution.privacy.n_users) == (4.0, N)
    assert any("groups of 2" in assumption for assumption in solution.privacy.assumptions)
    (phase,) = plan.phases
    by_hand = userdp.minimize(
        SquaredDistance(), USERS, optimizer=phase.optimizer(), mean=plan.mean(phase), epsilon=4.0, delta=1e-6,
        group_size=2, random_state=0,
    )  # fmt: skip
    assert solution.point.tobytes() == by_hand.point.tobytes()
    with pytest.raises(InvalidInputError, match="the data has 134 groups of 3: plan for so many users"):
        userdp.minimize(SquaredDistance(), USERS, plan=plan, group_size=3)


def test_phases_take_whole_groups_of_a_secret_order(monkeypatch):
    """A user sits in one group, and a group in one phase; the last group has one user less."""
    oracles, orders = [], []
    oracle, permutation = LocalEngine.oracle, SeededNoise.permutation

    def watched(engine, loss, users, **options):
        oracles.append(users.rows[::M, 0])
        return oracle(engine, loss, users, **options)

    def drawn(noise, n):
        orders.append(permutation(noise, n))
        return orders[-1]

    monkeypatch.setattr(LocalEngine, "oracle", watched)
    monkeypatch.setattr(SeededNoise, "permutation", drawn)
    plan = make_plan(n_users=1_000, items_per_user=2 * M, strong_convexity=1.0)
    users = make_users(1_999)
    solution = userdp.minimize(SquaredDistance(), users, plan=plan, group_size=2, random_state=0)
    sizes = [phase.n_users for phase in plan.phases]
    assert len(sizes) > 1
    of_users, of_groups = orders
    groups = [of_users[i : i + 2] for i in range(0, 1_999, 2)]
    phases = np.split(of_groups, np.cumsum(sizes))[:-1]
    assert len(phases) == len(oracles)
    for rows, chosen in zip(oracles, phases, strict=True):
        expected = np.concatenate([groups[group] for group in np.sort(chosen)])
        assert rows.tolist() == users.rows[::M, 0][expected].tolist()
    assert np.linalg.norm(solution.point - TARGET) < 0.3
    assert (solution.privacy.epsilon, solution.privacy.n_users) == (4.0, 1_999)
    said = " ".join(solution.privacy.assumptions)
    assert "groups of 2" in said
    assert f"{len(sizes)} phases" in said


def test_a_strongly_convex_plan_runs_its_phases_on_disjoint_users(monkeypatch):
    users, taken = make_users(2_000), []
    take = Users.take
    monkeypatch.setattr(Users, "take", lambda self, chosen: taken.append(chosen) or take(self, chosen))
    plan = make_plan(n_users=2_000, strong_convexity=1.0)
    solution = userdp.minimize(SquaredDistance(), users, plan=plan, random_state=0)
    assert [len(chosen) for chosen in taken] == [phase.n_users for phase in plan.phases] == [250, 500, 1000]
    assert len(np.unique(np.concatenate(taken))) == 1_750
    assert solution.privacy.n_users == 2_000
    assert np.linalg.norm(solution.point - TARGET) < 0.3


def test_every_phase_is_smoothed_by_its_own_radius_and_runs_on_its_own_users(monkeypatch):
    """Also a single phase: its mean is calibrated for half of the users."""
    plan = make_plan(n_users=2_000, strong_convexity=1.0, smoothness=np.inf)
    users, radii = make_users(2_000), []

    class AskedError(Exception):
        pass

    def ask(localization, oracle_of, n_users, *_):
        assert n_users == 2_000
        assert all(phase.mean.n_users == phase.n_users for phase in localization.phases)
        for i, phase in enumerate(localization.phases):
            assert oracle_of(i, np.arange(phase.n_users)).n_users == phase.n_users
        raise AskedError

    def note(loss, radius, *_, **__):
        radii.append(radius)
        return loss

    monkeypatch.setattr(Localization, "run", ask)
    monkeypatch.setattr("userdp.training.smoothed", note)
    for one in (plan, replace(plan, phases=plan.phases[-1:])):
        with pytest.raises(AskedError):
            userdp.minimize(SquaredDistance(), users, plan=one, random_state=0)
    expected = [phase.smoothing_radius for phase in plan.phases]
    assert radii == [*expected, expected[-1]]
    assert len(set(expected)) == 3


def test_the_paper_s_mode_runs_with_the_paper_s_numbers():
    """All of its rounds, on a problem small enough: T = 435."""
    users = make_users(20, items=np.ones(20, int))
    plan = make_plan(n_users=20, items_per_user=1, epsilon=9.0, delta=1e-3, calibration="paper")
    assert plan.phases[0].rounds == 20**2 + int(np.ceil(20 * np.sqrt(D)))
    with pytest.warns(PrivacyWarning, match="at least"):
        solution = userdp.minimize(SquaredDistance(), users, plan=plan, domain=L2Ball(1.0), random_state=0)
    assert not solution.privacy.certified
    assert (solution.privacy.epsilon, solution.privacy.delta) == (9.0, 1e-3)
    assert solution.privacy.spent[1].delta == pytest.approx(plan.phases[0].budget.delta)
    assert "NOT certified" in str(solution.privacy)
    assert np.linalg.norm(solution.point) <= 1 + 1e-9
    with pytest.warns(PrivacyWarning), pytest.raises(InvalidInputError, match="below 10"):
        userdp.minimize(
            SquaredDistance(), users, plan=make_plan(n_users=20, calibration="paper", epsilon=10.0)
        )


def test_losses_are_smoothed_in_closed_form_where_there_is_one():
    plain = JaxLoss(lambda theta, z: theta @ z)
    assert smoothed(Hinge(), 0.0, D, sampled=True) == Hinge()
    assert smoothed(Hinge(), 0.5, D, sampled=False) == SmoothedGLM(Hinge(), 0.5, D)
    assert smoothed(Hinge(), 0.5, D, sampled=True) == SampledSmoothing(Hinge(), 0.5)
    assert smoothed(plain, 0.5, D, sampled=False) == SampledSmoothing(plain, 0.5)
    assert smoothed(Regularized(Absolute(), 2.0), 0.5, D, sampled=False) == Regularized(
        SmoothedGLM(Absolute(), 0.5, D), 2.0
    )


def test_users_with_few_items_are_null_and_many_items_are_sampled():
    items = np.random.default_rng(0).integers(1, 40, size=N)
    users = make_users(items=items)
    few = items < 3
    users.rows[np.repeat(few, items)] = 50.0  # would move the mean, were they not null
    mean = ConcentratedMean(6.0, gate="deferred", agreement=0.9)
    solution = userdp.minimize(
        SquaredDistance(), users, **{**BY_HAND, "mean": mean}, min_items=3, max_items=7, random_state=0
    )
    assert np.linalg.norm(solution.point - TARGET) < 0.5


def test_scattered_users_are_refused_and_the_clipped_mean_does_not_care():
    users = make_users()
    users.rows[:] += 100 * np.repeat(np.arange(N), M)[:, None]
    with pytest.raises(NotConcentratedError):
        userdp.minimize(SquaredDistance(), users, **BY_HAND, random_state=0)
    clipped = {**BY_HAND, "mean": ClippedMean(1.0)}
    assert np.isfinite(userdp.minimize(SquaredDistance(), users, **clipped, random_state=0).point).all()


def test_no_error_or_warning_tells_of_one_user_s_values():
    users = make_users()
    for value in (np.nan, np.inf, 1e300, -1e38):
        users.rows[3] = value
        mean = ConcentratedMean(4.0, gate="deferred", agreement=0.95)
        solution = userdp.minimize(SquaredDistance(), users, **{**BY_HAND, "mean": mean}, random_state=0)
        assert np.linalg.norm(solution.point - TARGET) < 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": make_plan()}, "either a plan, or"),
        ({"optimizer": None}, "all of optimizer, mean, epsilon and delta"),
        ({"mean": None}, "all of optimizer, mean, epsilon and delta"),
        ({"epsilon": None}, "all of optimizer, mean, epsilon and delta"),
        ({"delta": None}, "all of optimizer, mean, epsilon and delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"domain": L2Ball(1.0)}, "belongs to the optimizer"),
        ({"start": [0.0, np.nan, 0.0]}, "finite"),
        ({"start": "here"}, "start"),
        ({"start": [[0.0, 0.0, 0.0]]}, "start"),
        ({"min_items": 0}, "min_items"),
        ({"max_items": 0}, "max_items"),
        ({"min_items": 5, "max_items": 4}, "below min_items"),
        ({"random_state": "seed"}, "random_state"),
        ({"mean": ConcentratedMean(-1.0, gate="deferred")}, "radius"),
    ],
)
def test_bad_arguments(changes, message):
    arguments = {**BY_HAND, "random_state": 0, **changes}
    with pytest.raises(InvalidInputError, match=message):
        userdp.minimize(SquaredDistance(), USERS, **arguments)


def test_bad_data_losses_and_plans():
    with pytest.raises(InvalidInputError, match="Users"):
        userdp.minimize(SquaredDistance(), np.zeros((10, 2)), **BY_HAND)
    with pytest.raises(InvalidInputError, match="JaxLoss"):
        userdp.minimize(lambda theta, z: 0.0, USERS, **BY_HAND)
    with pytest.raises(InvalidInputError, match="target"):
        userdp.minimize(Logistic(), USERS, **BY_HAND)
    with pytest.raises(InvalidInputError, match="the plan is for 500 users, the data has 400"):
        userdp.minimize(SquaredDistance(), USERS, plan=make_plan(n_users=500))
    with pytest.raises(InvalidInputError, match="the plan is for 7 coordinates, the model has 3"):
        userdp.minimize(SquaredDistance(), USERS, plan=make_plan(n_features=7))
    with pytest.raises(TooFewUsersError, match="at least"):
        userdp.minimize(SquaredDistance(), make_users(20), **BY_HAND)
    with pytest.warns(PrivacyWarning, match="delta = 0.1 is at least 1"):
        userdp.minimize(
            SquaredDistance(), USERS, **{**BY_HAND, "delta": 0.1, "mean": ClippedMean(4.0)}, random_state=0
        )


RUN = """
import json, os, sys
if sys.argv[1] == "1":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import hashlib, jax, jax.numpy as jnp, numpy as np, userdp
from userdp.data import Users
from userdp.engines import local_oracle
from userdp.problems import JaxLoss, Multinomial
rng = np.random.default_rng(0)
X, y = rng.normal(size=(4 * 3000, 300)) / 20, rng.integers(0, 3, size=4 * 3000)
users = Users.from_rows(X, np.repeat(np.arange(4), 3000), y)
softplus = JaxLoss(lambda theta, item: jnp.logaddexp(0.0, theta @ item[0]) - item[1] * (theta @ item[0]))
points = []
for loss in (softplus, Multinomial(3)):
    solution = userdp.minimize(
        loss, users, optimizer=userdp.optimizers.DPSGD(2, 1.0), mean=userdp.means.ClippedMean(0.5),
        epsilon=9.0, delta=1e-2, random_state=0,
    )
    points.append(solution.point.tobytes().hex())
    # The lattice rounds most of a difference away, so the gradients are compared as well.
    oracle = local_oracle(loss, users)
    with jax.enable_x64(True):
        gradients = jax.jit(oracle.user_gradients)(oracle.data, jnp.ones(oracle.dimension), jax.random.key(0))
    points.append(hashlib.sha256(np.asarray(gradients).tobytes()).hexdigest())
print(json.dumps(points))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are set by the process's affinity")
def test_the_answer_does_not_depend_on_the_number_of_threads():
    """Bit for bit; users of 3,000 x 300 numbers are large enough for XLA to cut them among threads."""
    outputs = []
    for threads in ("1", "2"):
        multi_threaded = "true" if threads == "2" else "false"
        environment = {
            **os.environ,
            "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={multi_threaded}",
            "OMP_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-c", RUN, threads]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("length", [1, 2, 5, 1_000])
@pytest.mark.parametrize("loss", [Logistic(), Regularized(Logistic(), 0.1), SampledSmoothing(Hinge(), 0.1)])
def test_a_start_of_another_length_is_refused(loss, length):
    """A kernel would take it for the length of a row, and read those of other users."""
    rows = np.random.default_rng(0).normal(size=(N, D))
    labelled = Users.from_rows(rows, np.arange(N), rows[:, 0] > 0)
    with pytest.raises(InvalidInputError, match=f"theta has {D} coordinates"):
        userdp.minimize(loss, labelled, start=np.zeros(length), **BY_HAND)


def test_a_loss_that_cannot_tell_takes_a_start_of_any_length():
    loss = JaxLoss(lambda theta, z: (theta[:2] ** 2).sum() - z[0] * theta[4])
    solution = userdp.minimize(loss, make_users(), start=np.zeros(5), **BY_HAND, random_state=0)
    assert solution.point.shape == (5,)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"group_size": 2.5}, "group_size must be an integer"),
        ({"min_items": "3"}, "min_items must be an integer"),
        ({"max_items": 2.5}, "max_items must be an integer"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"mean": "clipped"}, "mean must be one of userdp.means"),
        ({"optimizer": 3}, "optimizer must be one of userdp.optimizers"),
        ({"engine": "gpu"}, "engine must be a userdp.engines"),
        ({"start": 0.5}, "start must be a vector"),
        ({"optimizer": DPSGD(5, np.ones(2))}, "step_size must be one number or 3"),
    ],
)
def test_arguments_of_the_wrong_kind(more, message):
    with pytest.raises(InvalidInputError, match=message):
        userdp.minimize(SquaredDistance(), make_users(), **BY_HAND | more)


def test_a_plan_of_the_wrong_kind():
    with pytest.raises(InvalidInputError, match=r"plan must be made by userdp\.plan"):
        userdp.minimize(SquaredDistance(), make_users(), plan=3)


def test_a_loss_of_plain_rows_refuses_targets():
    labelled = Users.from_rows(np.zeros((N, D)), np.arange(N), np.zeros(N))
    with pytest.raises(InvalidInputError, match="rows without targets"):
        userdp.minimize(SquaredDistance(), labelled, **BY_HAND)


def test_a_statement_says_what_a_user_is():
    solution = userdp.minimize(SquaredDistance(), make_users(), unit="patient", random_state=0, **BY_HAND)
    assert solution.privacy.unit == "patient"
