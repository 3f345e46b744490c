"""The command line as a process of its own: signals, pipes, terminals and shells."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.conftest import BUDGET, FIT, run
from userdp.cli import app, interrupts, rehearsal
from userdp.cli.output import new_folder
from userdp.data import load_flights
from userdp.errors import InvalidInputError

ROOT = Path(__file__).parents[2]
USERDP = (sys.executable, "-m", "userdp")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and terminals of Unix")


def test_one_line_for_bad_input(tmp_path: Path) -> None:
    args = (*USERDP, "mean", "nowhere.csv", "--user", "u", "--columns", "x", *BUDGET, "--out", "out")
    result = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: there is no file nowhere.csv\n"
    assert list(tmp_path.iterdir()) == []


def test_one_line_for_a_file_that_kills_its_reader(tmp_path: Path) -> None:
    """One flipped bit in the first page asks polars for 2^61 bytes, which ends its process."""
    import polars as pl

    rows = [float(j) for j in range(60)]
    table = pl.DataFrame({"who": [f"p{j // 3}" for j in range(60)], "x": rows, "y": rows})
    for format, at in (("zstd", 106), ("uncompressed", 60)):
        file = tmp_path / f"{format}.parquet"
        table.write_parquet(file, compression=format)  # type: ignore[arg-type]
        content = bytearray(file.read_bytes())
        content[at : at + 40 : 3] = bytes(byte ^ 0xFF for byte in content[at : at + 40 : 3])
        file.write_bytes(content)
        before = sorted(tmp_path.iterdir())
        for command in (("mean", "--columns", "x"), ("fit", "--label", "y", "--features", "x")):
            args = (*USERDP, command[0], file.name, "--user", "who", *command[1:], *BUDGET, "--out", "out")
            result = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert (result.returncode, result.stdout) == (2, "")
            assert result.stderr == (
                f"error: {file.name} cannot be read as parquet: it is damaged, cut short or something else\n"
            )
            assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("reader", "dies"),
    [
        ("import os; os.abort()", True),
        ("import os; os._exit(86)", True),
        ("raise ValueError", False),
        ("import os; os._exit(0)", False),
    ],
)
def test_a_rehearsal_tells_a_death_from_an_error(
    data: Path, monkeypatch: pytest.MonkeyPatch, reader: str, dies: bool
) -> None:
    monkeypatch.setattr(rehearsal, "_READER", reader)
    with pytest.raises(InvalidInputError, match="damaged") if dies else nullcontext():
        rehearsal.rehearse(data)


def test_a_rehearsal_reads_what_will_be_read_and_nothing_that_is_no_parquet(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal.rehearse(data)
    rehearsal.rehearse(data, ["age", "no such column"])
    monkeypatch.setattr(rehearsal.subprocess, "run", None)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    for source in (tmp_path / "table.csv", tmp_path / "nothing.parquet", tmp_path):
        rehearsal.rehearse(source)


def test_ctrl_c_leaves_nothing_half_written(data: Path, tmp_path: Path, ledger: Path, spent: Any) -> None:
    """Interrupted as soon as the budget is reserved: it stays spent, and no file remains."""
    before = sorted(tmp_path.iterdir())
    args = ("fit", data, *FIT, "--other", "ward", *BUDGET, "--ledger", ledger, "--dataset", "patients")
    command = [*USERDP, *map(str, args), "--out", str(tmp_path / "model")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not spent(ledger):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (
        130,
        "error: interrupted; the budget is spent\n",
    )
    assert sorted(tmp_path.iterdir()) == before
    assert spent(ledger) == 1


def test_progress_shows_on_a_terminal_and_only_there(data: Path) -> None:
    import pty

    args = [*USERDP, "mean", str(data), "--user", "patient", "--columns", "age", "--seed", "0", *BUDGET]
    parent, child = pty.openpty()
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=child) as process:
        os.close(child)
        seen = b"".join(iter(lambda: _read(parent), b""))
    assert process.returncode == 0
    assert b"Averaging 400 users" in seen
    piped = subprocess.run([*args, "--json"], capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert set(json.loads(piped.stdout)) == {"mean", "noise_std", "radius", "units", "privacy"}


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux ends a terminal that was closed with an error
        return b""


def test_shell_completion() -> None:
    environment = {
        **os.environ,
        "_USERDP_COMPLETE": "complete_bash",
        "COMP_WORDS": "userdp pr",
        "COMP_CWORD": "1",
    }
    result = subprocess.run(USERDP, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["predict"]


def commands_in(page: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line[2:] for line in joined.splitlines() if line.startswith("$ userdp")]


@pytest.mark.parametrize("command", commands_in(ROOT / "docs" / "how-to" / "command-line.md"))
def test_the_documentation_uses_commands_that_exist(command: str) -> None:
    _, *args = shlex.split(command, comments=True)
    found: Any = get_command(app)
    while args and args[0] in getattr(found, "commands", ()):
        found = found.commands[args.pop(0)]
    found.make_context(found.name, args)  # reads the options, and runs nothing


def test_the_plan_in_the_documentation_is_what_is_printed() -> None:
    page = ROOT / "docs" / "how-to" / "command-line.md"
    (command,) = (command for command in commands_in(page) if "--target" in command)
    shown = run(*shlex.split(command)[1:]).stdout.splitlines()
    for line in (shown[0], shown[-1]):
        assert line in page.read_text(encoding="utf-8").splitlines()


def test_the_readme_s_commands_run_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load_flights().write_parquet("flights.parquet")
    commands = commands_in(ROOT / "README.md")
    assert len(commands) == 3
    for command in commands:
        result = run(*shlex.split(command)[1:])
        assert result.exit_code == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"flights.parquet", "model", "scores.parquet"}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let an interrupt through: a shell that starts the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_a_library_drops_is_not_lost(tmp_path: Path) -> None:
    class Library:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def write() -> None:
        with new_folder(tmp_path / "out", overwrite=False) as draft:
            (draft / "model.json").touch()
            Library()

    with interrupts.remembered(), pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []
