"""Users in shards: the same numbers, bit for bit, however they are cut, and as few questions as settle a round."""

from dataclasses import dataclass

import numpy as np
import pytest

from userdp.data import Users
from userdp.engines.layout import Packed, SideBySide, small_side_by_side
from userdp.engines.local import layout_for, local_oracle
from userdp.engines.shards import InTurn, Shard, _evaluate, sharded_oracle
from userdp.errors import InvalidInputError
from userdp.means import AdaptiveClippedMean, ClippedMean, ConcentratedMean
from userdp.means.in_loop_friends import GRAM_NORM
from userdp.means.sharded import Distances, FriendsAmong, Ramp, Rows, Survey, mean_of_shards
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import Hinge, L2Ball, Linear, Logistic, Multinomial, Regularized, SampledGLM, SmoothedGLM

BUDGET = Budget(8.0, 1e-6)
N, D = 203, 5


class Watched(InTurn):
    """Workers in this process that remember what they were asked."""

    def __init__(self, shards):
        super().__init__(shards)
        self.asked = []

    def answers(self, moment, question, shared, each):
        self.asked.append(type(question).__name__)
        return super().answers(moment, question, shared, each)


def in_shards(loss, users, n_shards, **options):
    return sharded_oracle(
        loss,
        users,
        lambda sources, plain, has_targets: Watched(
            [Shard(source, plain, has_targets, held=True) for source in sources]
        ),
        n_shards=n_shards,
        **options,
    )


def make_users(seed=0, n=N, spread=1.0, classes=2):
    """Ragged users, some null, some far from the others."""
    rng = np.random.default_rng(seed)
    items = rng.choice([1, 4], size=n)
    rows = rng.normal(size=(items.sum(), D)) * spread
    groups = np.repeat(np.arange(n), items)
    rows[groups == 7] = np.nan
    rows[groups == 11] = 40.0
    return Users.from_rows(rows, groups, rng.integers(0, classes, size=len(rows)))


MEANS = {
    "all friends": ConcentratedMean(1e4, gate="deferred"),
    "most settled": ConcentratedMean(3.0, gate="deferred", agreement=0.8),
    "all open": ConcentratedMean(0.8, gate="deferred", agreement=0.6),
    "clipped": ClippedMean(0.5),
}
LOSSES = {
    "logistic": Logistic(),
    "ridge": Regularized(Logistic(), 0.3),
    "sampled": SampledGLM(Hinge(), 0.3, D),
    "multinomial": Multinomial(3),
}


@pytest.mark.parametrize(
    ("mean", "loss"),
    [(mean, "logistic") for mean in MEANS]
    + [("most settled", "ridge"), ("clipped", "sampled"), ("clipped", "multinomial")],
)
def test_a_training_is_the_same_bit_for_bit_for_any_number_of_shards(mean, loss, monkeypatch):
    from userdp.means import loops

    monkeypatch.setattr(loops.DeferredGate, "passes", lambda self: True)  # look at what a refusal would hide
    users, T = make_users(classes=3 if loss == "multinomial" else 2), 5
    optimizer = DPSGD(T, 0.5, L2Ball(3.0))

    def point(oracle):
        calibrated = MEANS[mean].calibrate(N, oracle.dimension, BUDGET, T)
        return optimizer.run(oracle, calibrated, SeededNoise(3)).point.tobytes()

    expected = point(local_oracle(LOSSES[loss], users, min_items=2))
    for n_shards in (2, 7) if loss == "logistic" else (3,):
        assert point(in_shards(LOSSES[loss], users, n_shards, min_items=2)) == expected


@dataclass(frozen=True)
class InShards:
    """An engine that cuts users into shards in this process."""

    n_shards: int

    def oracle(self, loss, users, **options):
        options.pop("group_size", None)
        return in_shards(loss, users, self.n_shards, **options)

    def check(self, users):
        """Work on any users."""


def test_an_estimator_s_model_is_the_same_bit_for_bit():
    """A ridge around a point, a centre of zeros: the compiler would fuse products with sums in one loop only."""
    from userdp import LogisticRegression

    rng = np.random.default_rng(0)
    items = rng.choice([2, 5], size=300)
    X = rng.normal(size=(items.sum(), 4))
    y = X[:, 0] + rng.normal(size=len(X)) > 0
    models = [
        LogisticRegression(4.0, 1e-6, rounds=5, random_state=0, engine=engine).fit(
            X, y.astype(int), groups=np.repeat(np.arange(300), items)
        )
        for engine in (None, InShards(2))
    ]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()
    assert models[0].intercept_.tobytes() == models[1].intercept_.tobytes()


class Cut:
    """Vectors in shards, with nobody behind them."""

    def __init__(self, vectors, n_shards):
        self.parts, self.asked = np.array_split(vectors, n_shards), []

    def ask(self, question, *shared, each=None):
        import jax

        self.asked.append(type(question))
        own = [()] * len(self.parts) if each is None else [(more,) for more in each]
        with jax.enable_x64(True):
            return [
                jax.tree.map(np.asarray, _evaluate(question, part, *shared, *more))
                for part, more in zip(self.parts, own, strict=True)
            ]


def clouds():
    rng = np.random.default_rng(0)
    near = rng.normal(size=(60, 2)) * 0.1
    shell = rng.normal(size=(60, 2))
    shell /= np.linalg.norm(shell, axis=1, keepdims=True)
    far = near.copy()
    far[:9] = [1e7, -1e7]
    null = near.copy()
    null[::7] = np.nan
    ties = np.rint(rng.normal(size=(60, 2)) * 2) / 2
    return {
        "near": near,
        "shell": shell * 0.7,
        "two": near + (np.arange(60) % 2)[:, None],
        "far": far,
        "null": null,
        "all null": near * np.nan,
        "ties": ties,
        "far ties": np.where(np.arange(60)[:, None] < 40, ties, ties * 1e6),
    }


@pytest.mark.parametrize("hint", [None, "bad"])
@pytest.mark.parametrize("name", clouds())
def test_the_exact_mean_of_shards_is_the_session_s(name, hint):
    from userdp.means.friends import concentration_index, friend_counts, ramp_numerators
    from userdp.means.lattice import Lattice

    x = clouds()[name]
    lattice = Lattice.fine_enough(1.0, len(x), 2)
    ramp = Ramp(lattice, 30, 50)
    units = lattice.round(x)
    counts = friend_counts(units, lattice.radius_units)
    expected = (*lattice.mean(units, ramp_numerators(counts, 30, 50)), concentration_index(counts))
    for n_shards in (1, 4):
        guess = None if hint is None else np.array([10**6, -5])
        found, _ = mean_of_shards(Cut(x, n_shards), ramp, guess)
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one, other)
    assert name != "far" or lattice.radius_units * 1e7 > GRAM_NORM


def test_concentrated_users_cost_one_question_and_no_vector():
    from userdp.means.lattice import Lattice

    lattice = Lattice.fine_enough(1.0, 60, 2)
    shards = Cut(clouds()["near"], 5)
    exact, hint = mean_of_shards(shards, Ramp(lattice, 30, 50), np.zeros(2, np.int64))
    assert shards.asked == [Survey]
    assert hint is exact.whole
    shards = Cut(clouds()["shell"], 5)
    mean_of_shards(shards, Ramp(lattice, 30, 50), np.zeros(2, np.int64))
    assert {Survey, Distances, Rows, FriendsAmong} <= set(shards.asked)


def test_rounds_reuse_the_gradients_of_their_moment():
    loads = []

    class Source:
        n_users = N
        n_features = D

        def load(self, lay_out):
            loads.append(1)
            return lay_out(make_users())

    oracle = sharded_oracle(
        Logistic(),
        make_users(),
        lambda *_: InTurn([Shard(Source(), Logistic(), True, held=False)]),
    )
    mean = ConcentratedMean(3.0, gate="deferred", agreement=0.6).calibrate(N, D, BUDGET, 3)
    DPSGD(3, 0.1).run(oracle, mean, SeededNoise(0))
    assert len(loads) == 3  # once a round, however many questions it took


@pytest.mark.parametrize(("loss", "group_size"), [(Logistic(), 3), (SmoothedGLM(Hinge(), 0.3, D), 50)])
def test_groups_are_averages_of_consecutive_users_and_the_same_in_shards(loss, group_size):
    users = make_users()
    single = np.full((N, D), np.nan)
    oracle = local_oracle(loss, users)
    order = np.concatenate([block.positions[: block.n_users] for block in oracle.data])
    single[order] = oracle.evaluate(np.ones(D))
    expected = [np.nanmean(single[i : i + group_size], axis=0) for i in range(0, N, group_size)]
    local = local_oracle(loss, users, group_size=group_size)
    assert local.n_users == len(expected)
    np.testing.assert_allclose(local.evaluate(np.ones(D)), expected, rtol=1e-12)
    sharded = sharded_oracle(
        loss,
        users,
        lambda sources, plain, has_targets: InTurn(
            [Shard(s, plain, has_targets, held=True, group_size=group_size) for s in sources]
        ),
        n_shards=3,
        group_size=group_size,
    )
    assert sharded.evaluate(np.ones(D)).tobytes() == local.evaluate(np.ones(D)).tobytes()
    mean = ClippedMean(0.5).calibrate(local.n_users, D, BUDGET, 3)
    points = [DPSGD(3, 0.5).run(oracle, mean, SeededNoise(0)).point.tobytes() for oracle in (local, sharded)]
    assert points[0] == points[1]


def test_a_user_without_a_vector_leaves_its_group_to_the_others():
    rows = np.arange(12.0)[:, None]
    rows[[4, 6, 7]] = np.nan
    oracle = local_oracle(Linear(), Users.from_rows(rows, np.arange(12)), group_size=2)
    assert oracle.evaluate(np.ones(1))[:, 0].tolist() == pytest.approx(
        [0.5, 2.5, 5, np.nan, 8.5, 10.5], nan_ok=True
    )


@pytest.mark.parametrize(("loss", "n_shards"), [(Logistic(), 7), (SmoothedGLM(Hinge(), 0.3, D), 60)])
def test_a_user_s_gradient_is_the_same_in_any_shard_and_lane(loss, n_shards):
    """Small users are computed side by side, large ones one by one; a shard of the last cut has three of them."""
    rng = np.random.default_rng(2)
    items = rng.choice([1, 3, 4, 11, 60], size=180)
    users = Users.from_rows(
        rng.normal(size=(items.sum(), D)),
        np.repeat(np.arange(180), items),
        rng.integers(0, 2, size=items.sum()),
    )
    theta = rng.normal(size=D)
    local = local_oracle(loss, users)
    if layout_for(loss, D, np.float32, on_gpu=False) is small_side_by_side:
        assert [type(some) for some in local.data] == [SideBySide, Packed]
    sharded = in_shards(loss, users, n_shards).evaluate(theta)
    assert sorted(map(bytes, sharded)) == sorted(map(bytes, local.evaluate(theta)))


def test_what_cannot_run_in_shards_is_refused():
    users = make_users()
    oracle = in_shards(Logistic(), users, 2)
    for mean in (
        ConcentratedMean(1.0, calibration="paper"),
        ConcentratedMean(9.0, gate="gaussian"),
        AdaptiveClippedMean(1.0),
    ):
        calibrated = mean.calibrate(N, D, Budget(9.0, 1e-6), 2)
        with pytest.raises(InvalidInputError, match="local engine"):
            DPSGD(2, 0.1).run(oracle, calibrated, SeededNoise(0))
    other = ClippedMean(1.0).calibrate(N + 1, D, BUDGET, 2)
    with pytest.raises(InvalidInputError, match="calibrated for vectors of shape"):
        DPSGD(2, 0.1).run(oracle, other, SeededNoise(0))
    with pytest.raises(InvalidInputError, match="target"):
        in_shards(Logistic(), Users(users.rows, users.offsets), 2)
    assert in_shards(Linear(), Users(users.rows, users.offsets), 2).dimension == D
