"""Kill fit, mean and ledger use at random points, and see that nothing is half-written and no spent budget forgotten.

Each run is a child of this process, forked after the imports, so that the 500 points take minutes. A killed run may
leave a hidden draft beside its target; under the target's own name stands the whole release or nothing, and if it
stands there, or anything was printed, its budget is in the ledger, once. Every tenth time the same command is run
again, as its user would; a fit with a checkpoint always, and it must go on under the reservation that it had.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from benchmarks.measure import write_result
from userdp.cli import app
from userdp.estimators.linear_model import LinearModel
from userdp.privacy.ledger import Ledger

POINTS = 500
# Exit codes: users who do not agree are refused, and their budget is spent.
_RELEASED, _BAD_INPUT, _REFUSED = 0, 2, 3
# Large, so that users agree in nearly every run and the files come to be written.
EPSILON = 4.0
PRINTED = ".printed"
_SHARES = {"fit": 0.15, "fit with a checkpoint": 0.1, "mean": 0.3, "ledger": 0.45}
_TABLE = ("--user", "who", "--epsilon", str(EPSILON), "--delta", "1e-6")
_FIT = ("fit", *_TABLE, "--label", "y", "--features", "x", "--model", "linear")
_COMMANDS = {
    "fit": _FIT,
    "fit with a checkpoint": (*_FIT, "--checkpoint", "run"),
    "mean": ("mean", *_TABLE, "--columns", "x,y"),
}


def main() -> None:
    """Kill at so many points in all; the full number is committed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _in_child(lambda: _write_table(place / "table.csv"))
        for kind, share in _SHARES.items():
            points = max(1, round(share * options.points))
            attack = _kill_ledger if kind == "ledger" else _kill_command
            whole = _seconds(kind, place)
            found[kind] = dict(Counter(attack(kind, place, whole, i, rng) for i in range(points)))
            print(kind, found[kind], flush=True)
    if options.points == POINTS:
        _write(found)


def _write_table(path: Path) -> None:
    lines = ["who,x,y"]
    rng = random.Random(1)
    for user in range(300):
        own = rng.gauss(0, 1)
        lines += [f"u{user},{own + rng.gauss(0, 1)},{2 * own + rng.gauss(0, 1)}" for _ in range(2)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _fork(job: Callable[[], object], printed: Path | None = None) -> int:
    """Start a job in a child process; what it prints goes to a file, line by line, or nowhere. Return its number."""
    if child := os.fork():
        return child
    code = 70
    try:
        out = io.StringIO() if printed is None else printed.open("w", buffering=1, encoding="utf-8")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            job()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 71
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


def _in_child(job: Callable[[], object]) -> int:
    """Run a job to its end in a child process; return its exit code."""
    _, status = os.waitpid(_fork(job), 0)
    return os.waitstatus_to_exitcode(status)


def _command(kind: str, place: Path) -> Callable[[], object]:
    first, *rest = _COMMANDS[kind]
    ledger = ("--ledger", str(place / "budget.db"), "--dataset", "people")
    rest = [str(place / "run") if word == "run" else word for word in rest]
    words = [first, str(place / "table.csv"), *rest, *ledger, "--out", str(place / "out")]
    return lambda: app(words, prog_name="userdp")


def _clean(place: Path) -> None:
    for path in place.iterdir():
        if path.name != "table.csv":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with Ledger(place / "budget.db") as book:
        book.limit("people", 1_000, 0.5)


def _seconds(kind: str, place: Path) -> float:
    """How long a run takes that nobody kills."""
    if kind == "ledger":
        return 0.1
    _clean(place)
    start = time.perf_counter()
    if (code := _in_child(_command(kind, place))) not in (_RELEASED, _REFUSED):
        raise SystemExit(f"{kind} failed by itself, with code {code}")
    return time.perf_counter() - start


def _kill_command(kind: str, place: Path, whole: float, number: int, rng: random.Random) -> str:
    """Kill a command: anywhere, once its budget is reserved, while it writes, or as the release takes its name."""
    _clean(place)
    book = place / "budget.db"
    blank, child = book.stat().st_mtime_ns, _fork(_command(kind, place), place / PRINTED)
    signs: tuple[Callable[[], bool], ...] = (
        lambda: True,
        lambda: book.stat().st_mtime_ns != blank,
        lambda: any(place.glob(".out-*/*")) or (place / "out").exists(),
        lambda: any(place.glob(".out-*/report.html")) or (place / "out").exists(),
    )
    sign = signs[number % len(signs)]
    ended = False
    while not (ended or sign()):
        ended = os.waitpid(child, os.WNOHANG) != (0, 0)
        time.sleep(1e-4)
    ahead = (1.02 * whole, 0.5 * whole, 0.1 * whole, 0.03)[number % len(signs)]
    time.sleep(
        rng.choice([0.0, 0.1, 1.0]) * rng.random() * ahead if number % len(signs) else rng.random() * ahead
    )
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    outcome = _state(kind, place)
    resumes = "checkpoint" in kind
    if (resumes and outcome != "released") or number % 10 == 0:
        _run_again(kind, place)
    return outcome


def _run_again(kind: str, place: Path) -> None:
    """Run a killed command again: it must end well, and pay once; one that can be resumed not a second time."""
    shutil.rmtree(place / "out", ignore_errors=True)
    run, before = place / "run", _spent(place)
    if run.exists() and not (run / "run.npz").exists():
        # Killed while it began or cleaned up: it takes such a folder for a new one, or asks for a new one.
        if _in_child(_command(kind, place)) == _BAD_INPUT:
            if _spent(place) != before:
                raise SystemExit(f"{kind} refused a folder and paid")
            shutil.rmtree(run)
        else:
            _check_once_more(kind, place, before)
            return
    resumed = (run / "run.npz").exists()
    code = _in_child(_command(kind, place))
    if code not in (_RELEASED, _REFUSED):
        raise SystemExit(f"{kind} cannot be run again: code {code}")
    if ((place / "out").exists()) != (code == _RELEASED):
        raise SystemExit(f"{kind} run again ended with code {code}, and left something else")
    if code == _RELEASED:
        _check_whole(kind, place / "out")
    _check_once_more(kind, place, Decimal(0) if resumed else before)


def _check_once_more(kind: str, place: Path, before: Decimal) -> None:
    if (found := _spent(place)) - before != Decimal(str(EPSILON)):
        raise SystemExit(f"{kind} run again: {found} is spent, and {before} was before")


def _spent(place: Path) -> Decimal:
    with Ledger(place / "budget.db", create=False) as book:
        return book.status("people")[0].spent.epsilon


def _state(kind: str, place: Path) -> str:
    """Say what a run left; raise if it is half-written, or released and not paid for."""
    spent, out = _spent(place), place / "out"
    visible = {path.name for path in place.iterdir() if not path.name.startswith(".")}
    if extra := visible - {"table.csv", "budget.db", "budget.db-journal", "out", "run"}:
        raise SystemExit(f"{kind} left {extra}")
    if spent not in (0, Decimal(str(EPSILON))):
        raise SystemExit(f"{kind} paid {spent}")
    if not spent and (place / PRINTED).exists() and (place / PRINTED).read_text(encoding="utf-8"):
        raise SystemExit(f"{kind} printed and did not pay")
    if not out.exists():
        return "nothing released, budget spent" if spent else "nothing released, nothing spent"
    if not spent:
        raise SystemExit(f"{kind} released and did not pay")
    _check_whole(kind, out)
    return "released"


def _check_whole(kind: str, out: Path) -> None:
    if kind != "mean":
        LinearModel.load(out / "model.json")
    else:
        json.loads((out / "mean.json").read_text(encoding="utf-8"))
    if not (out / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise SystemExit(f"{kind} left half a report")


def _kill_ledger(kind: str, place: Path, whole: float, number: int, rng: random.Random) -> str:
    """Kill a process that reserves without end; what it was told is reserved must be there."""
    _clean(place)
    told, tell = os.pipe()

    def reserve() -> None:
        with Ledger(place / "budget.db") as book:
            while True:
                entry = book.reserve("people", 0.001, 1e-9)
                os.write(tell, b".")
                book.mark_released(entry)

    child = _fork(reserve)
    os.close(tell)
    time.sleep(rng.uniform(0.0, whole))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    acknowledged = 0
    while part := os.read(told, 4096):
        acknowledged += len(part)
    os.close(told)
    with Ledger(place / "budget.db", create=False) as book:
        entries = book.status("people")[0].entries
    if not acknowledged <= len(entries) <= acknowledged + 1:
        raise SystemExit(f"{acknowledged} reservations were acknowledged, {len(entries)} are in the ledger")
    return "one more than acknowledged" if len(entries) > acknowledged else "as acknowledged"


def _write(found: dict[str, dict[str, int]]) -> None:
    rows = [
        f"| {kind} | {what} | {times} |" for kind, states in found.items() for what, times in states.items()
    ]
    points = sum(sum(states.values()) for states in found.values())
    table = (
        f"# Faults: kill -9 at {points} random points\n\n"
        "Nothing was half-written, no release was without its entry in the ledger, no acknowledged reservation was "
        "lost, and every command that was run again ended as it should and paid once; a fit that went on from its "
        "checkpoint did not pay a second time.\n\n"
        "| killed | found afterwards | times |\n|---|---|---|\n" + "\n".join(rows)
    )
    write_result("faults", "make faults", {"points": points, "found": found}, table)


if __name__ == "__main__":
    main()
