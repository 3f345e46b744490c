"""Turn rows into ``results/peers.json`` and ``results/peers.md``."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.measure import RESULTS, write_result
from benchmarks.peers.objective import FLOOR

Row = dict[str, Any]
OURS = "userdp_default"


def publish(rows: list[Row]) -> None:
    with_ratios(rows)
    write_result("peers", "make bench-peers", {"rows": rows}, "\n".join(page(rows)))


def with_ratios(rows: list[Row]) -> None:
    """Add each row's ratio to the best tuned peer of its setting, and to the best also among base-rate starts."""
    peers: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["tuned"]:
            peers[setting(row)].append(row)
    for row in rows:
        tuned = peers[setting(row)]
        plain = [r["excess_loss"] for r in tuned if "base rate" not in r["method"]]
        if plain:
            row["ratio"] = round(ratio(row["excess_loss"], min(plain)), 3)
            row["ratio_with_base_rate"] = round(ratio(row["excess_loss"], min(r["excess_loss"] for r in tuned)), 3)


def setting(row: Row) -> tuple[Any, ...]:
    return row["table"], row["task"], row["users"], row["epsilon"]


def ratio(ours: float, theirs: float) -> float:
    return max(ours, FLOOR) / max(theirs, FLOOR)


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(np.mean(np.log(list(values))))


def page(rows: list[Row]) -> list[str]:
    ours = [row for row in rows if row["method"] == OURS and "ratio" in row]
    lines = ["# Peers in one run", ""]
    for row in ours:
        lines.append(f"{setting(row)} {row['excess_loss']:.4f} {row['ratio']} {row['ratio_with_base_rate']}")
    return lines
