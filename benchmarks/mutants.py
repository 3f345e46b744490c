"""Plant the known bugs of this field one at a time, and see that the tests notice each of them.

The bugs are in ``mutants.toml``. Each is planted in a copy of the tree, and the tests it names are run there until one
fails; the name of that test goes into the table. A bug that no test notices, or one whose text is no longer in the
code, ends the run with an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import RESULTS, write_result

ROOT = Path(__file__).parents[1]
CATALOGUE = Path(__file__).with_suffix(".toml")
SOURCES = Path("src/userdp")
TIMEOUT = 300
# pytest's exit codes
_TESTS_FAILED, _COLLECTION_FAILED = 1, 2
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*\])?(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A bug: texts of one file and what takes their place, and the tests that should notice."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]

    def planted_in(self, text: str) -> str:
        """Return the file's text with the bug in it; each replaced text must occur exactly once."""
        for old, new in self.edits:
            text = replaced_once(text, old, new, f"{self.name}: {self.file}")
        return text


def replaced_once(text: str, old: str, new: str, where: str) -> str:
    """Replace what must be in a text exactly once."""
    if (found := text.count(old)) != 1:
        raise ValueError(f"{where} has this {found} times, not once: {old!r}")
    return text.replace(old, new)


def catalogue() -> list[Mutant]:
    """Read the list of bugs."""
    entries = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["mutant"]
    return [
        Mutant(
            entry["name"],
            entry["file"],
            tuple((edit["old"], edit["new"]) for edit in (entry, entry.get("also")) if edit is not None),
            tuple(entry["tests"]),
        )
        for entry in entries
    ]


def killer(mutant: Mutant, tree: Path) -> str | None:
    """Plant a bug in a copy of the tree, run its tests, take it out again; return the test that failed."""
    file = tree / SOURCES / mutant.file
    sound = file.read_text(encoding="utf-8")
    file.write_text(mutant.planted_in(sound), encoding="utf-8")
    try:
        for tests in mutant.tests:
            if (test := _first_failure(tests, tree)) is not None:
                return test
    finally:
        file.write_text(sound, encoding="utf-8")
    return None


def _first_failure(tests: str, tree: Path) -> str | None:
    # No bytecode: two edits within a second would share it.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    # Nor what Numba kept: it does not look at every file.
    with tempfile.TemporaryDirectory() as kept:
        environment["NUMBA_CACHE_DIR"] = kept
        try:
            result = subprocess.run(
                command,
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{tests} (never ends)"
    if result.returncode == 0:
        return None
    if result.returncode not in (_TESTS_FAILED, _COLLECTION_FAILED):
        raise RuntimeError(f"{' '.join(command)} did not run:\n{result.stdout}{result.stderr}")
    found = _FAILED.search(result.stdout)
    return found[1] if found else f"{tests} (cannot be run)"


def main() -> None:
    """Plant all bugs, or those whose name has one of the given words in it; the others' rows stay as they are."""
    every, words = catalogue(), sys.argv[1:]
    mutants = [mutant for mutant in every if not words or any(word in mutant.name for word in words)]
    killed = _known() if words else {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for part in ("src", "tests", "benchmarks", "tools"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        for tests in sorted({tests for mutant in mutants for tests in mutant.tests}):
            if (test := _first_failure(tests, tree)) is not None:
                raise SystemExit(f"{test} fails without any bug planted")
        for mutant in mutants:
            killed[mutant.name] = killer(mutant, tree)
            print(f"{mutant.name}: {killed[mutant.name] or 'SURVIVED'}", flush=True)
            _write(every, killed)
    if survivors := [mutant.name for mutant in mutants if killed[mutant.name] is None]:
        raise SystemExit(f"{len(survivors)} bugs were not noticed: {', '.join(survivors)}")


def _known() -> dict[str, str | None]:
    """Read what an earlier run found."""
    file = RESULTS / "mutants.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["mutants"] if file.exists() else []
    return {row["name"]: row["killed_by"] for row in rows}


def _write(mutants: list[Mutant], killed: dict[str, str | None]) -> None:
    planted = [mutant for mutant in mutants if mutant.name in killed]
    rows = [
        f"| {mutant.name} | `{mutant.file}` | {f'`{test}`' if (test := killed[mutant.name]) else '**nothing**'} |"
        for mutant in planted
    ]
    number = sum(killed[mutant.name] is not None for mutant in planted)
    table = (
        "# Mutants: planted bugs, and what notices them\n\n"
        f"{len(planted)} bugs planted one at a time, {number} noticed.\n\n"
        "| planted | in | noticed first by |\n|---|---|---|\n" + "\n".join(rows)
    )
    result = {
        "planted": len(planted),
        "killed": number,
        "mutants": [
            {"name": mutant.name, "file": mutant.file, "killed_by": killed[mutant.name]} for mutant in planted
        ],
    }
    write_result("mutants", "make mutants", result, table, quiet=True)


if __name__ == "__main__":
    main()
