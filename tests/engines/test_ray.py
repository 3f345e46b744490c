"""A real Ray cluster of several processes: the local engine's answer, whatever happens to the workers."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

ray = pytest.importorskip("ray")
# Ray's own modules warn about what they will change.
pytestmark = pytest.mark.filterwarnings("ignore")

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

from userdp.data import Users  # noqa: E402
from userdp.engines import LocalEngine, RayEngine  # noqa: E402
from userdp.errors import InvalidInputError  # noqa: E402
from userdp.means import ClippedMean, ConcentratedMean  # noqa: E402
from userdp.optimizers import DPSGD  # noqa: E402
from userdp.problems import Logistic  # noqa: E402
from userdp.training import minimize  # noqa: E402

N, D, T = 300, 4, 12
MEANS = {
    "settled": ConcentratedMean(20.0, gate="deferred"),
    "open": ConcentratedMean(1.0, gate="deferred", agreement=0.7),
    "clipped": ClippedMean(0.5),
}


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs, where the trusted place is, and two machines for the workers, the second with one CPU."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=n) for n in (3, 1)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def users():
    rng = np.random.default_rng(0)
    items = rng.choice([2, 5], size=N)
    X = rng.normal(size=(items.sum(), D))
    y = X[:, 0] + rng.normal(size=len(X)) > 0
    return Users.from_rows(X, np.repeat(np.arange(N), items), y.astype(float))


def train(users, engine, mean="settled"):
    return minimize(
        Logistic(), users, optimizer=DPSGD(T, 0.5), mean=MEANS[mean], epsilon=8.0, delta=1e-6,
        random_state=1, engine=engine,
    )  # fmt: skip


@pytest.fixture(scope="module")
def expected(users):
    return {mean: train(users, LocalEngine(), mean) for mean in MEANS}


@pytest.mark.parametrize(("mean", "workers"), [("settled", 1), ("open", 2), ("clipped", 2), ("settled", 3)])
def test_any_number_of_workers_gives_the_local_answer_bit_for_bit(cluster, users, expected, mean, workers):
    engine = RayEngine(workers=workers)
    found = train(users, engine, mean)
    assert found.point.tobytes() == expected[mean].point.tobytes()
    assert found.privacy == expected[mean].privacy
    if mean == "settled":
        # One question a round (two in the first), d numbers and two scalars back from every worker.
        assert engine.traffic.questions == T + 1
        assert engine.traffic.bytes_received <= 8 * workers * ((T + 1) * (D + 2))


def test_an_estimator_gives_the_local_model(cluster, users):
    from userdp import LogisticRegression

    groups = np.repeat(np.arange(N), users.items_per_user)
    models = [
        LogisticRegression(4.0, 1e-6, rounds=5, random_state=0, engine=engine).fit(
            users.rows, users.targets, groups=groups
        )
        for engine in (None, RayEngine(workers=2))
    ]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()
    assert models[0].privacy_ == models[1].privacy_


def test_an_estimator_on_users_on_disk_gives_the_local_model(cluster, tmp_path):
    from userdp import LinearRegression
    from userdp.data import store_users

    rng = np.random.default_rng(0)
    a, ids = rng.normal(size=3 * N), np.repeat(np.arange(N), 3)
    table = {"id": ids, "a": a, "b": rng.normal(size=3 * N), "y": 3 * a}
    stored = store_users(table, tmp_path / "users", user="id", label="y", classes=None, part_bytes=4_000)
    assert len(stored.parts) > 2
    models = [
        LinearRegression(4.0, 1e-6, rounds=5, max_items=2, random_state=0, engine=engine).fit(stored)
        for engine in (None, RayEngine(workers=2))
    ]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()


def place_of(worker):
    return ray.get_runtime_context().get_node_id(), os.getpid()


class Hurt(RayEngine):
    """An engine some of whose workers, of one machine if it is named, are hurt while they answer."""

    def hurting(self, hurt, questions, machine=None):
        object.__setattr__(self, "plan", (hurt, set(questions), machine))
        return self

    def oracle(self, *arguments, **options):
        found = super().oracle(*arguments, **options)
        workers, plain = found.workers, found.workers.answers
        (hurt, questions, machine), rng, asked = self.plan, np.random.default_rng(5), []

        def answers(*question):
            asked.append(1)
            if len(asked) not in questions:
                return plain(*question)
            places = ray.get([actor.__ray_call__.remote(place_of) for actor in workers._actors])
            victim = rng.choice([pid for node, pid in places if machine in (None, node)])
            timer = threading.Timer(float(rng.uniform(0.0, 0.01)), hurt, [int(victim)])
            timer.start()
            try:
                return plain(*question)
            finally:
                timer.join()

        workers.answers = answers
        return found


def assert_same(found, expected):
    assert found.point.tobytes() == expected["settled"].point.tobytes()
    assert found.privacy == expected["settled"].privacy


def test_killed_workers_change_neither_answer_nor_budget(cluster, users, expected):
    engine = Hurt(workers=2).hurting(lambda pid: os.kill(pid, signal.SIGKILL), [3, 6, 9])
    assert_same(train(users, engine), expected)
    assert engine.traffic.replaced == 3


def test_a_worker_that_hangs_is_replaced(cluster, users, expected):
    engine = Hurt(workers=2, patience=45.0).hurting(lambda pid: os.kill(pid, signal.SIGSTOP), [5])
    assert_same(train(users, engine), expected)
    # On a busy machine a new worker may be slower to start than patience lasts, and is replaced in its turn.
    assert engine.traffic.replaced >= 1


def test_a_slow_worker_is_waited_for(cluster, users, expected):
    def nap(pid):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(pid, signal.SIGCONT)

    engine = Hurt(workers=2).hurting(nap, [5])
    assert_same(train(users, engine), expected)
    assert engine.traffic.replaced == 0


def test_a_removed_machine_changes_nothing(cluster, users, expected):
    """The last test on this cluster: one of its machines is gone after it."""
    machines, (first, second) = cluster
    # With one CPU of the first machine taken, one of three workers has to be on the second.
    here = NodeAffinitySchedulingStrategy(first.node_id, soft=False)
    tenant = ray.remote(num_cpus=1)(Tenant).options(scheduling_strategy=here).remote()
    ray.get(tenant.is_here.remote())

    def remove(pid):
        # A machine takes its processes with it; those of Ray's stand-in for one would go on answering for a while.
        os.kill(pid, signal.SIGKILL)
        ray.kill(tenant)
        machines.remove_node(second, allow_graceful=False)

    engine = Hurt(workers=3, patience=60.0).hurting(remove, [4], machine=second.node_id)
    assert_same(train(users, engine), expected)
    assert engine.traffic.replaced >= 1


class Tenant:
    """Takes a CPU."""

    def is_here(self):
        return True


def test_bad_settings():
    with pytest.raises(InvalidInputError, match="workers"):
        RayEngine(workers=0)
    with pytest.raises(InvalidInputError, match="patience"):
        RayEngine(patience=0)
