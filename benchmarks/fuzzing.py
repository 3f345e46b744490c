"""Bad input of every kind: what comes in from outside, and what must be true whatever it is.

Each ``check_...`` takes one case and raises unless the library answered it or refused it by one of its own errors: no
traceback, nothing written, no budget lost. ``make fuzz`` runs many cases, the tests a few.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st
from typer.testing import CliRunner

from userdp.cli import app
from userdp.data import load_users, read_table
from userdp.errors import UserDPError
from userdp.estimators.linear_model import LinearModel
from userdp.privacy.ledger import Account, Ledger

_CODES = {0, 1, 2, 3}


@lru_cache
def folder() -> Path:
    """Return a folder with one valid file of every kind; made once."""
    place = Path(tempfile.mkdtemp(prefix="userdp-fuzz-"))
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "who": np.repeat([f"p{j}" for j in range(20)], 3),
            "x": rng.normal(size=60),
            "kind": rng.choice(["a", "b", "ü"], 60),
            "y": rng.integers(0, 2, 60),
        }
    )
    table.write_csv(place / "table.csv")
    table.write_parquet(place / "table.parquet")
    LinearModel(
        kind="LogisticRegression",
        feature_names=("x", "kind"),
        coefficients=np.array([[0.5, -0.1]]),
        intercepts=np.array([0.3]),
        low=np.array([-4.0, -np.inf]),
        scale=np.array([0.5, np.inf]),
        high=np.array([4.0, np.inf]),
        noise_std=np.array([[0.1, 0.1]]),
        classes=(0, 1),
        privacy={"epsilon": 1.0},
        details={},
    ).save(place / "model.json")
    with Ledger(place / "ledger.db") as book:
        book.limit("people", 1, 1e-5)
        book.reserve("people", 0.25, 1e-6, what="a mean")
    return place


@lru_cache
def accounts() -> tuple[Account, ...]:
    """Return what the valid ledger says."""
    with Ledger(folder() / "ledger.db", create=False) as book:
        return book.status()


@dataclass(frozen=True)
class Damage:
    """Bytes of a valid file, some overwritten, cut out, put in or cut off; or bytes from nowhere."""

    file: str
    content: bytes


def damaged(file: str) -> st.SearchStrategy[Damage]:
    """Damage one of the valid files in up to four places."""

    def apply(edits: list[tuple[str, float, bytes]]) -> Damage:
        content = (folder() / file).read_bytes()
        for kind, where, other in edits:
            at = int(where * len(content))
            after = {
                "write": at + len(other),
                "put in": at,
                "cut out": at + 7 * len(other),
                "end": len(content),
            }
            content = content[:at] + (b"" if kind == "cut out" else other) + content[after[kind] :]
        return Damage(file, content)

    def flip(place: tuple[float, int]) -> Damage:
        """Turn one bit of a byte that is in use; most of a ledger's file is empty pages."""
        content = bytearray((folder() / file).read_bytes())
        used = [at for at, byte in enumerate(content) if byte]
        content[used[int(place[0] * (len(used) - 1))]] ^= 1 << place[1]
        return Damage(file, bytes(content))

    edit = st.tuples(
        st.sampled_from(["write", "put in", "cut out", "end"]),
        st.floats(0, 1),
        st.one_of(st.binary(max_size=8), st.sampled_from(_SPLINTERS)),
    )
    # Not of parquet files: a single bit may end the reader's process, and this one with it (userdp.cli.rehearsal).
    flips = [] if file.endswith(".parquet") else [st.tuples(st.floats(0, 1), st.integers(0, 7)).map(flip)]
    return st.one_of(
        st.lists(edit, min_size=1, max_size=4).map(apply),
        *flips,
        st.binary(max_size=200).map(lambda content: Damage(file, content)),
    )


_SPLINTERS = [
    *b'null NaN 1e999 -0 " [ {} , PAR1 true "","" who,x [[[[[[[[ \xff\xfe \xef\xbb\xbf \xf0\x9f\x98\x80'.split(
        b" "
    ),
    *(b"\n", b"\r\n", b"\x00", b"SQLite format 3\x00", b"9" * 400),
]


def check_reader(case: Damage) -> bool:
    """Read a damaged table and group it by user; return whether it was taken."""
    path = _written(case)
    try:
        load_users(read_table(path), user="who", features=["x"])
    except UserDPError as error:
        return _refused(error)
    return True


def check_model(case: Damage) -> bool:
    """Read a damaged model file and predict with it."""
    path = _written(case)
    try:
        model = LinearModel.load(path)
        with np.errstate(all="ignore"):
            model.decision(np.zeros((1, len(model.feature_names))))
    except UserDPError as error:
        return _refused(error)
    return True


def check_ledger(case: Damage) -> bool:
    """Open a damaged ledger: refused and left as it was, or every entry reads as it was written."""
    path = _written(case)
    try:
        with Ledger(path, create=False, timeout=0.1) as book:
            found = book.status()
            if found != (accounts() if case.content else ()):  # an empty file is a new ledger
                raise AssertionError("an account was changed")
            if found:
                book.reserve("people", 0.25, 1e-6)
                (after,) = book.status("people")
                if not after.spent.epsilon > found[0].spent.epsilon:
                    raise AssertionError("a reservation was lost")
    except UserDPError as error:
        if case.content and path.read_bytes() != case.content and not _is_database(path):
            raise AssertionError("a file that was refused was written to") from error
        return _refused(error)
    return True


def check_command(words: list[str]) -> bool:
    """Run a command line in this process: a known exit code, one line of error, nothing written, no budget lost."""
    place = folder()
    book = place / "ledger.db"
    before, ledger = _listing(place), book.read_bytes()
    args = [word.replace("@", str(place)) for word in words]
    with contextlib.chdir(place):  # a word may be a file's name
        result = CliRunner().invoke(app, args, prog_name="userdp")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in _CODES:
        raise AssertionError(f"exit code {result.exit_code}: {result.stderr}")
    if result.exit_code == 2:
        lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
        if len(lines) != 1 or not lines[0].startswith("error: "):
            raise AssertionError(f"not one line: {result.stderr!r}")
        if _listing(place) != before or book.read_bytes() != ledger:
            raise AssertionError("something was written")
    _restore(place, before, ledger)
    return result.exit_code == 0


_WORDS = """@/table.csv @/table.parquet @/model.json @/ledger.db @/nothing @ @/out - who x kind y x,kind kind=a,b kind=
= people nobody a,b 0,1 1 0 -1 1e-6 1e-400 nan inf 1e309 0.5 2 99999999999999999999 ü logistic linear huber quantile svc
LOGISTIC -- -h --help [red] {} %s"""
_FLAGS = """--user --label --features --columns --epsilon --delta --out --model --categories --other --classes
--min-items --max-items --quantile --unit --seed --ledger --dataset --overwrite --json --quiet --radius --no-intercept
--nonsense --version --users --items --trials --target"""
_VALUES, _OPTIONS = st.sampled_from([*_WORDS.split(), "", " ", "\x00"]), st.sampled_from(_FLAGS.split())
_COMMANDS = st.sampled_from(
    ["fit", "mean", "predict", "plan", "ledger limit", "ledger show", "ledger", "", "x"]
)
_USUAL = {
    "mean": ["@/table.csv", "--user", "who", "--columns", "x", "--epsilon", "1", "--delta", "1e-6"],
    "fit": [
        "@/table.csv",
        "--user",
        "who",
        "--label",
        "y",
        "--features",
        "x",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    ],
    "predict": ["@/model.json", "@/table.parquet", "--out", "@/out"],
    "ledger limit": ["@/ledger.db", "people", "--epsilon", "1", "--delta", "1e-5"],
    "ledger show": ["@/ledger.db"],
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Usual command lines with words taken out, changed and put in, and words from nowhere."""
    command = draw(_COMMANDS)
    words = list(_USUAL.get(command, [])) if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(words)))
        match draw(st.sampled_from(["out", "change", "put", "option"])):
            case "out":
                words[at : at + 1] = []
            case "change":
                words[at : at + 1] = [draw(st.one_of(_VALUES, st.text(max_size=5)))]
            case "put":
                words[at:at] = [draw(_VALUES)]
            case "option":
                words[at:at] = [draw(_OPTIONS), draw(_VALUES)]
    # A real fit takes a second, and only unbroken lines get that far: such a line leaves out its budget.
    if command == "fit" and words == _USUAL["fit"]:
        words = words[:-2]
    return [*command.split(), *words]


@dataclass(frozen=True)
class Fuzzer:
    """A kind of input: where cases come from, what is checked, and how many make up a full run."""

    cases: st.SearchStrategy[Any]
    check: Callable[[Any], bool]
    full_run: int


FUZZERS = {
    "CSV tables": Fuzzer(damaged("table.csv"), check_reader, 15_000),
    "parquet tables": Fuzzer(damaged("table.parquet"), check_reader, 20_000),
    "model files": Fuzzer(damaged("model.json"), check_model, 45_000),
    "ledger files": Fuzzer(damaged("ledger.db"), check_ledger, 15_000),
    "command lines": Fuzzer(command_lines(), check_command, 8_000),
}


def _written(case: Damage) -> Path:
    path = folder() / f"damaged-{case.file}"
    path.write_bytes(case.content)
    return path


def _refused(error: UserDPError) -> bool:
    if not str(error).strip() or len(str(error).splitlines()) != 1:
        raise AssertionError(f"not one line: {error}")
    return False


def _is_database(path: Path) -> bool:
    """Whether SQLite takes a file for its own; it may then roll back what a dead process left."""
    try:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error:
        return False
    return True


def _listing(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*")}


def _restore(place: Path, before: set[str], ledger: bytes) -> None:
    for path in sorted(_listing(place) - before):
        target = Path(path)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
    (place / "ledger.db").write_bytes(ledger)
