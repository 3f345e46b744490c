"""Faults of the machine: full disks, closed pipes, locks, places that cannot be written, kill -9."""

import functools
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import RESULTS
from tests.cli.conftest import BUDGET, FIT, run
from userdp.privacy.ledger import Ledger

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits and devices of Unix")
MEAN = ("--user", "patient", "--columns", "age", "--seed", "0", *BUDGET)
# Runs a command line with its files limited to some bytes, as on a disk that fills up.
LIMITED = (
    "import resource, signal, sys; limit = int(sys.argv.pop(1)); from userdp.cli import main; "
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); main()"
)


def process(*args: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "userdp", *map(str, args)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize("with_folder", [False, True])
def test_a_release_that_cannot_be_printed(data: Path, tmp_path: Path, with_folder: bool) -> None:
    out = ("--out", tmp_path / "out") if with_folder else ()
    with open("/dev/full", "w") as full:
        result = process("mean", data, *MEAN, *out, "--json", stdout=full)
    where = f"it is in {tmp_path / 'out'}" if with_folder else "it is lost"
    assert result.returncode == 3
    assert result.stderr == (
        f"error: cannot print the release: No space left on device; {where}; the budget is spent\n"
    )


def test_a_release_that_nobody_reads(data: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = process("mean", data, *MEAN, stdout=writing)
    os.close(writing)
    assert result.returncode == 3
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["mean", "fit"])
def test_a_disk_that_fills_up_after_the_budget_is_spent(
    command: str, data: Path, tmp_path: Path, ledger: Path, spent: Any
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    options = MEAN if command == "mean" else (*FIT, "--other", "ward", *BUDGET)
    args = (command, data, *options, "--ledger", ledger, "--dataset", "patients", "--out", tmp_path / "out")
    # Enough for the ledger, not for a report.
    limited = [sys.executable, "-c", LIMITED, str(20 * 1024), *map(str, args)]
    result = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.endswith("; the budget is spent\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert spent(ledger) == 1


def test_a_disk_that_is_full_before(data: Path, ledger: Path, spent: Any) -> None:
    args = ("mean", data, *MEAN, "--ledger", ledger, "--dataset", "patients")
    limited = [sys.executable, "-c", LIMITED, "0", *map(str, args)]
    result = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.endswith("nothing was recorded\n")
    assert spent(ledger) == 0


def test_a_place_that_cannot_be_written(data: Path) -> None:
    result = run("mean", data, *MEAN, "--out", "/proc/out")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: cannot write in /proc")
    assert len(result.stderr.splitlines()) == 1


def test_a_ledger_that_another_process_keeps_locked(
    data: Path, tmp_path: Path, ledger: Path, spent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("userdp.cli.spending.Ledger", functools.partial(Ledger, timeout=0.1))
    before = sorted(tmp_path.iterdir())
    other = sqlite3.connect(ledger, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    out = ("--ledger", ledger, "--dataset", "patients", "--out", tmp_path / "out")
    result = run("mean", data, *MEAN, *out)
    other.execute("ROLLBACK")
    other.close()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "another process keeps it locked" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert spent(ledger) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_kill_9_at_a_few_points() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.faults", "--points", "12", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_committed_run_killed_at_many_points() -> None:
    assert json.loads((RESULTS / "faults.json").read_text(encoding="utf-8"))["points"] >= 500
