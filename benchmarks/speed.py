"""How close to the memory's speed a round comes on a CPU, and how its cost grows."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray

import userdp
from benchmarks import speed_peers
from benchmarks.curves import growth_curves
from benchmarks.measure import RESULTS, interleaved_seconds, others_share, write_result
from userdp.arrays import FloatArray
from userdp.data import load_flights
from userdp.data.users import Users
from userdp.engines import LocalEngine, fused
from userdp.engines.interface import Storage
from userdp.engines.local import local_oracle
from userdp.means import ClippedMean, ConcentratedMean
from userdp.means.friends import friend_counts
from userdp.means.interface import MeanEstimator
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import SeededNoise
from userdp.optimizers import DPSGD
from userdp.privacy import Budget
from userdp.problems import Logistic

N, M, D = 10_000, 100, 100
T = 200
STORAGES: tuple[Storage, ...] = ("float32", "float16", "int8")
SEEDS = 5
# Two trainings whose difference is that many rounds.
LENGTHS = (10, 70)
CERTIFIED = ConcentratedMean(1.0, gate="deferred")
# Each exponent is the slope over these sizes. The smallest data sets are 100 MB and more: they come from memory, like
# the largest ones, and not from a cache.
RANGES = {
    "users": [(n, 20, 10) for n in (125_000, 250_000, 500_000, 1_000_000)],
    "items": [(5_000, m, 100) for m in (64, 128, 256, 512, 1_024)],
    "features": [(5_000, 100, d) for d in (64, 128, 256, 512, 1_024)],
}


def make_users(n: int, m: int, d: int, *, ragged: bool = False) -> Users:
    rng = np.random.default_rng(0)
    items = rng.integers(1, 2 * m, n) if ragged else np.full(n, m)
    rows = rng.standard_normal((int(items.sum()), d), dtype=np.float32)
    rows /= np.float32(math.sqrt(d))
    targets = (rng.random(len(rows)) < 0.5).astype(np.float64)
    return Users(rows, np.concatenate([[0], np.cumsum(items)]), targets)  # type: ignore[arg-type]


def gradients(*, ragged: bool) -> dict[str, float]:
    """Time all users' gradients, and the fastest single read of the same rows."""
    users = make_users(N, M, D, ragged=ragged)
    rows: NDArray[Any] = users.rows
    oracle, halves, bytes_ = (local_oracle(Logistic(), users, storage=kind) for kind in STORAGES)
    compiled, target, flat = jax.jit(oracle.user_gradients), np.empty_like(rows), rows.ravel()
    total = jax.jit(jnp.sum)
    with jax.enable_x64(True):  # as the optimizers run it
        theta, key, on_device = jnp.zeros(D), jax.random.key(0), jnp.asarray(rows)
        jobs = {
            "sum by XLA": lambda: total(on_device).block_until_ready(),
            "dot by BLAS": lambda: np.dot(flat, flat),
            "copy": lambda: np.copyto(target, rows),
            "gradients": lambda: compiled(oracle.data, theta, key).block_until_ready(),
            "halves": lambda: compiled(halves.data, theta, key).block_until_ready(),
            "bytes": lambda: compiled(bytes_.data, theta, key).block_until_ready(),
        }
        seconds = interleaved_seconds(jobs, twice=True)
    read = min(seconds["sum by XLA"], seconds["dot by BLAS"])
    return {
        "milliseconds": 1e3 * seconds["gradients"],
        "over_read": seconds["gradients"] / read,
        "over_copy": seconds["gradients"] / seconds["copy"],
        "over_halves": seconds["gradients"] / seconds["halves"],
        "over_bytes": seconds["gradients"] / seconds["bytes"],
    }


def counts() -> dict[str, float]:
    """Time exact friend counts, no pair settled early, and half a Gram product in tiles that stay in the cache."""
    x = np.random.default_rng(0).normal(size=(N, D))
    lattice = Lattice.fine_enough(1.6 * math.sqrt(D), N, D)
    units = lattice.round(x)
    best = {}
    for tile in (256, 512, 1024):
        room = np.empty((tile, tile))
        starts = range(0, N - N % tile, tile)

        def gram(tile: int = tile, room: FloatArray = room, starts: range = starts) -> None:
            for i in starts:
                for j in range(i, starts.stop, tile):
                    np.dot(units[i : i + tile], units[j : j + tile].T, out=room)

        best[f"tiles of {tile}"] = gram
    seconds = interleaved_seconds(
        {"counts": lambda: friend_counts(units, lattice.radius_units), **best}, repeats=5
    )
    fastest = min(value for name, value in seconds.items() if name != "counts")
    return {"seconds": seconds["counts"], "over_half_gram": seconds["counts"] / fastest}


def trainings(
    users: Users,
    lengths: Sequence[int],
    repeats: int,
    mean: MeanEstimator = CERTIFIED,
    storage: str = "float32",
) -> list[float]:
    """Time trainings of so many rounds, compiled before, in seconds."""
    oracle = local_oracle(Logistic(), users, storage=storage)
    jobs = {}
    for rounds in lengths:
        calibrated = mean.calibrate(users.n_users, users.n_features, Budget(1.0, 1e-6), rounds)
        jobs[str(rounds)] = partial(DPSGD(rounds, 1.0).run, oracle, calibrated, SeededNoise(0))
    for job in jobs.values():
        job()
    return list(interleaved_seconds(jobs, repeats).values())


def milliseconds_per_round(users: Users, mean: MeanEstimator = CERTIFIED, storage: str = "float32") -> float:
    """Time a whole training and divide by its rounds."""
    return 1e3 * trainings(users, [T], 1, mean, storage)[0] / T


def milliseconds_of_a_round(users: Users) -> float:
    """Time two trainings, and divide what one takes longer by the rounds that it has more.

    What a training costs once, whatever its rounds, is in neither.
    """
    short, long = trainings(users, LENGTHS, 4)
    return 1e3 * (long - short) / (LENGTHS[1] - LENGTHS[0])


def growth(along: str) -> dict[str, Any]:
    """Fit how a round's cost grows along one of the ranges."""
    sizes, index = RANGES[along], list(RANGES).index(along)
    costs = [milliseconds_of_a_round(make_users(*size)) for size in sizes]
    slope = np.polyfit(np.log([size[index] for size in sizes]), np.log(costs), 1)[0]
    return {"sizes": sizes, "milliseconds": costs, "exponent": float(slope)}


def training() -> dict[str, Any]:
    """Time a round of a whole training, here and in other libraries; here before and after them."""
    users = make_users(N, M, D)

    def here() -> list[float]:
        certified = (milliseconds_per_round(users, storage=storage) for storage in STORAGES)
        return [*certified, milliseconds_per_round(users, ClippedMean(1.0))]

    before, peers, after = here(), speed_peers.milliseconds_per_round(users), here()
    names = ("certified", "halves", "bytes", "clipped")
    means = [sum(pair) / 2 for pair in zip(before, after, strict=True)]
    return {**dict(zip(names, means, strict=True)), "peers": peers}


def rounding() -> dict[str, Any]:
    """Fit the embedded flights with every storage and the same noise: log losses over users, one for each seed."""
    flights = load_flights()
    X = flights.select("hour", "distance", "temp", "humid", "wind_speed", "visib").to_numpy()
    y, users = flights["late"].to_numpy().astype(float), flights["tailnum"].to_numpy()
    weights = 1 / pd.Series(users).map(pd.Series(users).value_counts()).to_numpy()
    losses: dict[str, Any] = {}
    for storage in STORAGES:
        engine = LocalEngine(storage=storage)
        losses[storage] = []
        for seed in range(SEEDS):
            model = userdp.LogisticRegression(epsilon=1.0, delta=1e-6, engine=engine, random_state=seed)
            z = model.fit(X, y, groups=users).decision_function(X)
            losses[storage].append(float(np.average(np.logaddexp(0, z) - y * z, weights=weights)))
    return losses


PARTS: dict[str, Callable[[], Any]] = {
    "kernel": lambda: "compiled" if fused.serves(Logistic(), D, np.float32) else "XLA's",
    "gradients": lambda: {"even": gradients(ragged=False), "ragged": gradients(ragged=True)},
    "counts": counts,
    "training": training,
    "rounding": rounding,
    **{along: partial(growth, along) for along in RANGES},
}


def main() -> None:
    """Measure the parts that are named, or all, and keep the others."""
    file, chosen = RESULTS / "speed.json", sys.argv[1:] or list(PARTS)
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    others: dict[str, float | None] = result.setdefault("others", {})
    for name, part in PARTS.items():
        if name in chosen or name not in result:
            result[name], others[name] = others_share(part)
            print(name, result[name], others[name], flush=True)
    publish({name: result[name] for name in (*PARTS, "others")})


PEERS = {
    "jax_privacy_peer": ("jax-privacy", "at least 10"),
    "opacus_peer": ("opacus, with its data loader", "at least 50"),
    "opacus_adaptive": ("opacus, its batch made once; adaptive clip", ""),
    "pfl_peer": ("pfl", "at least 50"),
}


def _moved(losses: dict[str, list[float]], storage: str) -> float:
    return float(np.sqrt(np.mean(np.subtract(losses[storage], losses["float32"]) ** 2)))


def publish(result: dict[str, Any]) -> None:
    even, ragged = result["gradients"]["even"], result["gradients"]["ragged"]
    own = result["training"]
    kernels = {
        "compiled": "the compiled kernel of `userdp[fast]`",
        "XLA's": "XLA's kernels, without `userdp[fast]`",
    }
    lines = [
        "# Speed on a CPU",
        "",
        f"{N:,} users, {M} rows each, d = {D}, float32 features, {kernels[result['kernel']]}.",
        "",
        "| measure | here | goal |",
        "|---|---|---|",
        f"| all users' gradients / one read of the rows | {even['over_read']:.2f} | at most 1.5 |",
        f"| the same, 1 to 199 rows a user | {ragged['over_read']:.2f} | at most 2 |",
        f"| all users' gradients / one copy of the rows | {even['over_copy']:.2f} | |",
        f"| all users' gradients, ms | {even['milliseconds']:.0f} | |",
        f"| the same / with rows stored as float16 | {even['over_halves']:.2f} | |",
        f"| the same / with rows stored as int8 | {even['over_bytes']:.2f} | |",
        "| exact friend counts / half of a Gram product in float64, tile by tile "
        f"| {result['counts']['over_half_gram']:.2f} | at most 1.5 |",
        f"| a round of training, certified mean, T = {T}, ms | {own['certified']:.0f} | |",
        f"| the same / the gradients alone | {own['certified'] / even['milliseconds']:.2f} | |",
        f"| a round of training with rows stored as float16, ms | {own['halves']:.1f} | |",
        f"| a round of training with rows stored as int8, ms | {own['bytes']:.1f} | |",
        "",
        "## The same training in other libraries",
        "",
        f"Logistic regression, every user in every round, by their clipped means; here the mean round of {T}.",
        "",
        "| library | ms a round | over the certified mean | float16 rows | int8 rows | goal | over the clipped mean |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {PEERS[name][0]} | {ms:.0f} | {ms / own['certified']:.1f} | {ms / own['halves']:.1f} "
            f"| {ms / own['bytes']:.1f} | {PEERS[name][1]} "
            f"| {ms / own['clipped']:.1f} |"
            for name, ms in own["peers"].items()
        ),
        "",
        "What rounding costs: the log loss of `LogisticRegression` on the embedded flights (all users, epsilon = 1, "
        f"{SEEDS} seeds) differs from that of float32 rows with the same noise by "
        + " and ".join(f"{_moved(result['rounding'], kind):.0e} ({kind})" for kind in STORAGES[1:])
        + f", root mean square; from seed to seed it differs by {np.std(result['rounding']['float32']):.0e}.",
        "",
        "## How a round's cost grows",
        "",
        "Concentrated users; n, m, d as in the table. The smallest data set is larger than the processor's caches. "
        f"A round is a {LENGTHS[1] - LENGTHS[0]}th of what a training of {LENGTHS[1]} rounds takes longer than one of "
        f"{LENGTHS[0]}: what a training costs once is left out.",
        "",
        "![Milliseconds a round against users, rows a user and features](speed.svg)",
        "",
        "| along | exponent (linear is 1) | (n, m, d): ms a round |",
        "|---|---|---|",
    ]
    for name in RANGES:
        row = result[name]
        points = ", ".join(
            f"({n:,}, {m}, {d}): {ms:.1f}"
            for (n, m, d), ms in zip(row["sizes"], row["milliseconds"], strict=True)
        )
        lines.append(f"| {name} | {row['exponent']:.2f} | {points} |")
    shares = ", ".join(
        f"{name} {share:.0%}"
        for name, share in result["others"].items()
        if share is not None and name != "kernel"
    )
    lines += ["", f"Share of the machine that other processes took meanwhile: {shares}."]
    curves = growth_curves({name: result[name] for name in RANGES}, "What a round costs")
    (RESULTS / "speed.svg").write_text(curves, encoding="utf-8")
    write_result("speed", "make bench-speed", result, "\n".join(lines))


if __name__ == "__main__":
    main()
