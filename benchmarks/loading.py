"""Reading a table of 10 million rows and 1 million users: seconds, and peak memory over that of the data.

Each file is read in a process of its own, whose peak memory the operating system keeps; the imports are in it. The
data's memory is that of the columns as an Arrow table, features as float32. Predictions are streamed from the same
files by a process that may not hold them.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import write_result

ROWS, USERS, FEATURES = 10_000_000, 1_000_000, 10
NAMES = [f"f{k}" for k in range(FEATURES)]


def write_files(folder: Path) -> dict[str, float]:
    """Write the same table in several ways, and return the megabytes of each in memory."""
    import polars as pl

    rng = np.random.default_rng(0)
    features = {name: rng.standard_normal(ROWS, dtype=np.float32) for name in NAMES}
    numbered = pl.DataFrame({"user": rng.integers(0, USERS, ROWS), **features})
    named = numbered.with_columns(user="user-" + pl.col("user").cast(pl.String).str.zfill(9))
    numbered.write_parquet(folder / "numbers.parquet")
    numbered.write_csv(folder / "numbers.csv")
    named.write_parquet(folder / "names.parquet")
    # A reader of CSV files cannot know that an id is a number.
    as_text = numbered.with_columns(pl.col("user").cast(pl.String))
    sizes = {"numbers.parquet": numbered, "names.parquet": named, "numbers.csv": as_text}
    return {name: frame.estimated_size() / 1e6 for name, frame in sizes.items()}


def load(path: str) -> dict[str, float]:
    """Read and group one file in this process."""
    from userdp.data import load_users

    start = time.perf_counter()
    table = load_users(path, user="user", features=NAMES, dtype=np.float32)
    return {"seconds": time.perf_counter() - start, "users": table.n_users, "peak_mb": peak_megabytes()}


def stream(path: str) -> dict[str, float]:
    """Read one file batch by batch, as ``userdp predict`` does."""
    from userdp.data import stream_features

    start = time.perf_counter()
    rows = sum(len(X) for _, X in stream_features(path, features=NAMES, keep="user"))
    return {"seconds": time.perf_counter() - start, "rows": rows, "peak_mb": peak_megabytes()}


def peak_megabytes() -> float:
    """Largest resident memory of this process so far; ``getrusage`` would start from that of the parent."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024 / 1e6


def in_its_own_process(job: str, path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.loading", job, str(path)]
    answer: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return answer


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = [
            {
                "file": name,
                "data_mb": size,
                "load": in_its_own_process("load", folder / name),
                "stream": in_its_own_process("stream", folder / name),
            }
            for name, size in write_files(folder).items()
        ]
    publish(files)


def publish(files: list[dict[str, Any]]) -> None:
    lines = [
        "# Reading tables, measured",
        "",
        f"{ROWS:,} rows of {USERS:,} users, {FEATURES} features as float32. Peak memory is that of the whole process, "
        "imports included.",
        "",
        "| file | data, MB | load and group, s (goal: under 60) | peak, MB | peak over data (goal: at most 3) | "
        "stream, s | peak, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in files:
        loaded, streamed, size = row["load"], row["stream"], row["data_mb"]
        lines.append(
            f"| {row['file']} | {size:.0f} | {loaded['seconds']:.1f} | {loaded['peak_mb']:.0f} | "
            f"{loaded['peak_mb'] / size:.2f} | {streamed['seconds']:.1f} | {streamed['peak_mb']:.0f} |"
        )
    write_result("loading", "make bench-loading", {"files": files}, "\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps({"load": load, "stream": stream}[sys.argv[1]](sys.argv[2])))
    else:
        main()
