"""The tables, read once and kept as arrays that any environment can read: users shuffled, 64 rows each at most.

``python -m benchmarks.peers.tables`` writes ``build/peers/data/TABLE.npz``. The embedded flights are always there;
the other tables are read from ``$USERDP_TABLES`` (by default ``../shared/data``) and left out when absent.
"""

import os
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.peers.problem import DATA, MAX_ITEMS, Table
from userdp.data import load_flights

ROOT = Path(__file__).parents[2]
SOURCE = Path(os.environ.get("USERDP_TABLES", ROOT.parent / "shared" / "data"))
_SHUFFLE_SEED = 2023


def flights() -> pl.DataFrame:
    """Everything known at departure, categories one-hot; late or not, and by how much."""
    categories = ["carrier", "origin", "month", "weekday", "hour"]
    numbers = ["distance", "plane_age", "temp", "humid", "wind_speed", "precip", "visib"]
    frame = load_flights()
    one_hot = frame.select(categories).to_dummies().cast(pl.Boolean)
    kept = frame.select(pl.col("tailnum").alias("user_id"), *numbers)
    return kept.hstack(one_hot).hstack(
        frame.select(label="late", target="arr_delay"),
    )


def retail() -> pl.DataFrame:
    frame = pl.read_parquet(SOURCE / "retail.parquet")
    return frame.drop("log_value").rename({"log_qty": "target"})


def jester() -> pl.DataFrame:
    frame = pl.read_parquet(SOURCE / "jester.parquet").rename({"rating": "target"})
    return frame.drop("joke_id").hstack(frame.select("joke_id").to_dummies().cast(pl.Boolean))


def chem97() -> pl.DataFrame:
    return pl.read_parquet(SOURCE / "chem97.parquet").rename({"score": "target"})


def save_jester_wide() -> None:
    ratings = pl.read_parquet(SOURCE / "jester_wide.parquet").drop("user_id").fill_null(0.0).to_numpy()
    np.savez_compressed(DATA / "jester_wide.npz", ratings=ratings)


READERS = {"flights": flights, "retail": retail, "jester": jester, "chem97": chem97}


def as_table(name: str, frame: pl.DataFrame) -> Table:
    """Shuffle users, keep a random 64 rows of each, and part the boolean columns from the numbers."""
    rng = np.random.default_rng(_SHUFFLE_SEED)
    ids = frame["user_id"].to_physical().rank("dense").to_numpy() - 1
    place = rng.permutation(int(ids.max()) + 1)[ids]
    order = np.lexsort((rng.random(len(ids)), place))
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    order = order[rank < MAX_ITEMS]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(place[order]))])
    frame = frame[order]
    features = frame.drop("user_id", "label", "target")
    boolean = [c for c in features.columns if set(features[c].unique()) <= {0, 1}]
    numbers = [c for c in features.columns if c not in boolean]
    return Table(
        name=name,
        numbers=features.select(pl.col(numbers).cast(pl.Float32)).to_numpy().reshape(len(frame), -1),
        booleans=features.select(pl.col(boolean).cast(pl.Int8)).to_numpy().reshape(len(frame), -1),
        names=np.array(numbers + boolean),
        offsets=offsets,
        label=frame["label"].cast(pl.Float32).to_numpy(),
        target=frame["target"].cast(pl.Float32).to_numpy(),
    )


def prepare(names: tuple[str, ...] = tuple(READERS)) -> list[str]:
    """Write what is not there yet; return the tables that are."""
    found = []
    for name in names:
        if not (DATA / f"{name}.npz").exists():
            if name != "flights" and not (SOURCE / f"{name}.parquet").exists():
                print(f"{name}: not in {SOURCE}, left out")
                continue
            as_table(name, READERS[name]()).save()
        found.append(name)
    if (SOURCE / "jester_wide.parquet").exists() and not (DATA / "jester_wide.npz").exists():
        save_jester_wide()
    return found


if __name__ == "__main__":
    print(prepare())
