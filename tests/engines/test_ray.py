"""A real Ray cluster of several processes: the local engine's answer, whatever happens to the workers."""

import os
import signal
import threading
import time

import numpy as np
import pytest

ray = pytest.importorskip("ray")
# Ray's own modules warn about what they will change.
pytestmark = pytest.mark.filterwarnings("ignore")

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
    """A head without CPUs, where the trusted place is, and two machines for the workers."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in __import__("sys").path if p)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=3) for _ in range(2)]
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


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_local_answer_bit_for_bit(cluster, users, expected, mean, workers):
    engine = RayEngine(workers=workers)
    found = train(users, engine, mean)
    assert found.point.tobytes() == expected[mean].point.tobytes()
    assert found.privacy == expected[mean].privacy
    if mean == "settled":
        # One question a round (two in the first), d numbers and two scalars back from every worker.
        assert engine.traffic.questions == T + 1
        assert engine.traffic.bytes_received <= 8 * workers * ((T + 1) * (D + 2))


def workers_alive():
    from ray.util.state import list_actors

    return [actor.pid for actor in list_actors(filters=[("state", "=", "ALIVE")])]


def hurt_while(engine, users, hurt, times):
    """Hurt a worker a few times while a training runs."""
    stop = threading.Event()
    done = []

    def violence():
        rng = np.random.default_rng(5)
        while not stop.is_set() and len(done) < times:
            time.sleep(float(rng.uniform(0.3, 1.0)))
            pids = workers_alive()
            if pids and not stop.is_set():
                hurt(int(rng.choice(pids)))
                done.append(1)

    thread = threading.Thread(target=violence)
    thread.start()
    try:
        # Slow rounds, so that something happens during them.
        return train(users, engine)
    finally:
        stop.set()
        thread.join()
        assert done


class Slow(RayEngine):
    """An engine whose every question takes a while, so that workers die in the middle of rounds."""

    def oracle(self, *arguments, **options):
        found = super().oracle(*arguments, **options)
        plain = found.workers.answers

        def answers(*question):
            time.sleep(0.3)
            return plain(*question)

        found.workers.answers = answers
        return found


def test_killed_workers_change_neither_answer_nor_budget(cluster, users, expected):
    engine = Slow(workers=2)
    found = hurt_while(engine, users, lambda pid: os.kill(pid, signal.SIGKILL), times=2)
    assert engine.traffic.replaced >= 1
    assert found.point.tobytes() == expected["settled"].point.tobytes()
    assert found.privacy == expected["settled"].privacy


def test_a_worker_that_hangs_is_replaced(cluster, users, expected):
    engine = Slow(workers=2, patience=6.0)
    found = hurt_while(engine, users, lambda pid: os.kill(pid, signal.SIGSTOP), times=1)
    assert engine.traffic.replaced >= 1
    assert found.point.tobytes() == expected["settled"].point.tobytes()


def test_a_removed_machine_changes_nothing(cluster, users, expected):
    """The last test on this cluster: one of its machines is gone after it."""
    engine = Slow(workers=4)
    removed = []

    def remove(pid):
        if not removed:
            removed.append(1)
            cluster[0].remove_node(cluster[1][1], allow_graceful=False)

    # Three of the four workers find room on the machine that is left, so two must share a CPU there.
    cluster[0].add_node(num_cpus=4)
    found = hurt_while(engine, users, remove, times=1)
    assert found.point.tobytes() == expected["settled"].point.tobytes()
    assert found.privacy == expected["settled"].privacy


def test_bad_settings():
    with pytest.raises(InvalidInputError, match="workers"):
        RayEngine(workers=0)
    with pytest.raises(InvalidInputError, match="patience"):
        RayEngine(patience=0)
