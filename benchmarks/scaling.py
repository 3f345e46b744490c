"""Past one machine's memory, measured: training from disk, a Ray cluster against this process, and a model of both.

``python -m benchmarks.scaling [streaming|ray]`` measures one part again and keeps the other.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, write_result
from userdp.data import StoredUsers, Users, load_users, store_users
from userdp.data.parts import AnyUsers
from userdp.engines import Engine, LocalEngine, RayEngine
from userdp.engines.local import Objective
from userdp.engines.shards import InTurn, Shard, ShardedOracle, sharded_oracle
from userdp.engines.sources import Source
from userdp.means import ConcentratedMean
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import Logistic
from userdp.training import minimize

# 4.3 GB of float32 rows; and users that fit in memory, for whom a whole fit is compared.
STREAM_N, STREAM_M, STREAM_D, STREAM_T = 60_000, 45, 400, 3
FEW_N = 4_000
RAY_N, RAY_M, RAY_D = 20_000, 50, 100
# What the model is asked about.
BIG_N, BIG_M, BIG_D, MACHINES, CORES, GROUP = 100_000_000, 100, 100, 100, 16, 100


def train(users: Users | StoredUsers, rounds: int, engine: Engine) -> bytes:
    solution = minimize(
        Logistic(), users, optimizer=DPSGD(rounds, 1.0), mean=ConcentratedMean(1.0, gate="deferred"),
        epsilon=4.0, delta=1e-6, random_state=0, engine=engine,
    )  # fmt: skip
    return solution.point.tobytes()


def write_table(folder: Path, n: int = STREAM_N) -> None:
    """Write rows in no order of users, a few files of parquet."""
    import polars as pl

    rng = np.random.default_rng(0)
    rows, files = n * STREAM_M, 40
    ids = rng.permutation(np.repeat(np.arange(n), STREAM_M))
    for k in range(files):
        part = ids[k * rows // files : (k + 1) * rows // files]
        x = rng.standard_normal((len(part), STREAM_D), dtype=np.float32) / np.float32(math.sqrt(STREAM_D))
        frame = pl.DataFrame(x, schema=[f"x{i}" for i in range(STREAM_D)])
        labels = (x[:, 0] > 0).astype(np.int8)
        frame.with_columns(user=pl.Series(part), y=pl.Series(labels)).write_parquet(
            folder / f"{k:02d}.parquet", compression="uncompressed"
        )


def child(what: str, folder: str) -> None:
    """Run one step of the streaming measurement in a process of its own, whose peak memory is known."""
    import resource

    start = time.perf_counter()
    answer = b""
    table, stored = Path(folder) / "table", Path(folder) / "users"
    if what == "write":
        table.mkdir()
        write_table(table)
        (Path(folder) / "few").mkdir()
        write_table(Path(folder) / "few", FEW_N)
    elif what == "store":
        store_users(table, stored, user="user", label="y")
    elif what == "stream":
        answer = train(StoredUsers.open(stored), STREAM_T, LocalEngine())
    elif what == "memory":
        answer = train(
            load_users(table, user="user", label="y", dtype=np.float32).users, STREAM_T, LocalEngine()
        )
    else:
        answer = fit_command(Path(folder), what)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_mb": peak, "answer": answer.hex()}))


def fit_command(folder: Path, what: str) -> bytes:
    """Run ``userdp fit`` in this process; return the model's coefficients and the number of rounds."""
    from userdp.cli import app

    scratch = [] if what == "few_memory" else ["--scratch", str(folder / "scratch")]
    table = folder / ("table" if what == "fit" else "few")
    with suppress(SystemExit):  # where it failed, there is no model
        app(
            ["fit", str(table), "--user", "user", "--label", "y", "--epsilon", "0.1", "--delta", "1e-6",
             "--seed", "0", "--out", str(folder / what), "--quiet", *scratch]
        )  # fmt: skip
    model = json.loads((folder / what / "model.json").read_text())
    return json.dumps([model["details"]["rounds"], model["coefficients"], model["intercepts"]]).encode()


def streaming() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("USERDP_SCRATCH")) as folder:
        steps = {}
        for what in ("write", "store", "stream", "memory", "fit", "few_disk", "few_memory"):
            result = subprocess.run(
                [sys.executable, "-m", "benchmarks.scaling", "child", what, folder],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            steps[what] = json.loads(result.stdout.splitlines()[-1])
            print(what, {k: v for k, v in steps[what].items() if k != "answer"}, flush=True)
    answers = {what: step.pop("answer") for what, step in steps.items()}
    data = 4e-6 * STREAM_N * STREAM_M * STREAM_D
    return {
        "data_mb": data,
        "steps": steps,
        "same_answer": answers["stream"] == answers["memory"],
        "same_model": answers["few_disk"] == answers["few_memory"],
        "fit_rounds": json.loads(bytes.fromhex(answers["fit"]))[0],
    }


def ray_users(n: int) -> Users:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n * RAY_M, RAY_D), dtype=np.float32) / np.float32(math.sqrt(RAY_D))
    return Users(X, np.arange(n + 1) * RAY_M, (X[:, 0] > 0).astype(float))  # type: ignore[arg-type]


class ShardsHere:
    """The engines' shards in this process: what a worker computes, with nothing on the way."""

    def oracle(self, loss: Objective, users: AnyUsers) -> ShardedOracle:
        def start(sources: Sequence[Source], plain: Objective, has_targets: bool) -> InTurn:
            return InTurn([Shard(source, plain, has_targets, held=True) for source in sources])

        return sharded_oracle(loss, users, start)


def per_round(users: Users, engine: Engine | ShardsHere, rounds: int) -> float:
    """Milliseconds a round, from two lengths of a run on the same workers: what happens once cancels."""
    oracle = engine.oracle(Logistic(), users)
    seconds = []
    for count in (2, 2 + rounds):
        mean = ConcentratedMean(20.0, gate="deferred").calibrate(
            users.n_users, RAY_D, Budget(8.0, 1e-6), count
        )
        optimizer = DPSGD(count, 1.0)
        optimizer.run(oracle, mean, SeededNoise(0))  # compiled
        start = time.perf_counter()
        optimizer.run(oracle, mean, SeededNoise(0))
        seconds.append(time.perf_counter() - start)
    return 1e3 * (seconds[1] - seconds[0]) / rounds


def cluster() -> dict[str, Any]:
    many, few = ray_users(RAY_N), ray_users(200)
    result: dict[str, Any] = {
        "local": per_round(many, LocalEngine(), 20),
        "shards": per_round(many, ShardsHere(), 20),
    }
    for workers in (1, 2):
        engine = RayEngine(workers=workers)
        result[f"overhead_{workers}"] = per_round(few, engine, 50)
        result[f"ray_{workers}"] = per_round(many, engine, 20)
        result[f"sent_{workers}"] = engine.traffic.bytes_sent / engine.traffic.questions / workers
        result[f"received_{workers}"] = engine.traffic.bytes_received / engine.traffic.questions / workers
        print(workers, result, flush=True)
    result["overhead_8"] = crowded(few)
    return result


def crowded(few: Users) -> float:
    """Return milliseconds a round of next to no data takes with eight workers, more than there are cores."""
    import ray

    ray.shutdown()
    ray.init(num_cpus=8, log_to_driver=False, configure_logging=False)
    return per_round(few, RayEngine(workers=8), 50)


def model(measured: dict[str, Any]) -> dict[str, Any]:
    """Add up a round: what the shards compute, at the rate of a core here, and what a question costs.

    Workers on one machine share its cores. One worker's question costs what was measured with next to no data, and
    every further worker the trusted place a seventh of what seven more cost (on one machine that they share, so this is
    no less than on machines of their own). The measured rounds check the model.
    """
    cores_here = os.cpu_count() or 1
    rate: float = measured["shards"] * cores_here / (RAY_N * RAY_M * RAY_D)
    once: float = measured["overhead_1"]
    each: float = max(measured["overhead_8"] - once, 0.0) / 7

    def milliseconds(n: int, m: int, d: int, workers: int, cores: int) -> float:
        return rate * n * m * d / cores + once + each * (workers - 1)

    workers = MACHINES * CORES
    sent, received = 8 * (2 * BIG_D) + 8, 8 * (BIG_D + 2)
    return {
        "predicted_1": milliseconds(RAY_N, RAY_M, RAY_D, 1, cores_here),
        "predicted_2": milliseconds(RAY_N, RAY_M, RAY_D, 2, cores_here),
        "bytes_sent_a_worker": 8 * (2 * RAY_D) + 8,
        "bytes_received_a_worker": 8 * (RAY_D + 2),
        "big_seconds_a_round": milliseconds(BIG_N, BIG_M, BIG_D, workers, workers) / 1e3,
        "big_gigabytes_a_machine": 4e-9 * BIG_N * BIG_M * BIG_D / MACHINES,
        "big_bytes_a_round": workers * (sent + received),
        "big_bytes_open_a_round": workers * (sent + received) + 2 * 8 * BIG_N // GROUP,
    }


def publish(result: dict[str, Any]) -> None:
    s, r, m = result["streaming"], result["ray"], result["model"]
    steps = s["steps"]
    lines = [
        "# Past one machine's memory",
        "",
        "## Training from disk",
        "",
        f"{STREAM_N:,} users, {STREAM_M} rows each, d = {STREAM_D}: {s['data_mb']:,.0f} MB of float32 rows in a folder "
        f"of parquet, in no order; {STREAM_T} rounds of `userdp.minimize`.",
        "",
        "| step | seconds | peak memory of the process, MB |",
        "|---|---|---|",
        "| sort by user on disk (`store_users`) "
        f"| {steps['store']['seconds']:.0f} | {steps['store']['peak_mb']:,.0f} |",
        f"| train from disk | {steps['stream']['seconds']:.0f} | {steps['stream']['peak_mb']:,.0f} |",
        f"| read into memory and train | {steps['memory']['seconds']:.0f} | {steps['memory']['peak_mb']:,.0f} |",
        f"| `userdp fit --scratch`: sort, find scales, {s['fit_rounds']} rounds "
        f"| {steps['fit']['seconds']:.0f} | {steps['fit']['peak_mb']:,.0f} |",
        "",
        f"The rows are {s['data_mb'] / steps['store']['peak_mb']:.1f} times the peak of sorting, "
        f"{s['data_mb'] / steps['stream']['peak_mb']:.1f} times that of training and "
        f"{s['data_mb'] / steps['fit']['peak_mb']:.1f} times that of `userdp fit` (goal: 4). The same answer from disk "
        f"as from memory, bit for bit: {'yes' if s['same_answer'] else 'no'}; the same model by `userdp fit` of "
        f"{FEW_N:,} of such users with and without `--scratch`: {'yes' if s['same_model'] else 'no'}.",
        "",
        "## Ray against this process",
        "",
        f"{RAY_N:,} users, {RAY_M} rows each, d = {RAY_D}, certified mean; the cluster is on one machine with "
        f"{result['cores']} cores, the workers and the trusted place share them.",
        "",
        "| | ms a round | rows a second, millions | the model's ms |",
        "|---|---|---|---|",
        *(
            f"| {name} | {r[key]:.1f} | {RAY_N * RAY_M / r[key] / 1e3:.1f} | {guess} |"
            for name, key, guess in (
                ("this process, one compiled loop", "local", ""),
                ("this process, users in a shard", "shards", ""),
                ("Ray, 1 worker", "ray_1", f"{m['predicted_1']:.1f}"),
                ("Ray, 2 workers", "ray_2", f"{m['predicted_2']:.1f}"),
            )
        ),
        "",
        f"A round of next to no data takes {r['overhead_1']:.1f} ms with one worker, {r['overhead_2']:.1f} with two, "
        f"{r['overhead_8']:.1f} with eight, which the model takes for the cost of further workers. "
        f"Bytes a question and worker: {r['sent_2']:.0f} out ({m['bytes_sent_a_worker']} by the model), "
        f"{r['received_2']:.0f} back ({m['bytes_received_a_worker']}).",
        "",
        f"## {BIG_N:,} users on {MACHINES} machines, by the model",
        "",
        f"{BIG_M} rows a user, d = {BIG_D}, {CORES} workers a machine, groups of {GROUP} users. Nobody has run this; "
        "the model is the one checked above, and it takes one network trip a question to be small against that.",
        "",
        "| | |",
        "|---|---|",
        f"| rows in memory a machine | {m['big_gigabytes_a_machine']:.0f} GB |",
        f"| a round | {m['big_seconds_a_round']:.1f} s |",
        f"| over the network a round, all users settled | {m['big_bytes_a_round'] / 1e6:.1f} MB |",
        "| the same where distances and weights of all groups travel "
        f"| {m['big_bytes_open_a_round'] / 1e6:.0f} MB |",
    ]
    write_result("scaling", "make bench-scaling", result, "\n".join(lines))


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
        return
    file, chosen = RESULTS / "scaling.json", sys.argv[1:] or ["streaming", "ray"]
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name, part in (("streaming", streaming), ("ray", cluster)):
        if name in chosen or name not in result:
            result[name] = part()
    result["cores"] = os.cpu_count()
    result["model"] = model(result["ray"])
    publish({key: result[key] for key in ("streaming", "ray", "model", "cores")})


if __name__ == "__main__":
    main()
