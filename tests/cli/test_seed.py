"""A seed marks a release everywhere it is shown, and a release without one nowhere."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import FIT, run
from userdp.privacy.statement import SEEDED

MEAN = ("--user", "patient", "--columns", "age", "--epsilon", "0.9", "--delta", "1e-6", "--radius", "40")
COMMANDS = {"mean": MEAN, "fit": (*FIT, "--other", "ward", "--epsilon", "0.9", "--delta", "1e-6")}


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("seed", [("--seed", "0"), ()])
def test_a_seed_shows_everywhere(
    command: str, seed: tuple[str, ...], data: Path, tmp_path: Path, ledger: Path
) -> None:
    out = tmp_path / "out"
    paid = ("--ledger", ledger, "--dataset", "patients")
    result = run(command, data, *COMMANDS[command], *seed, *paid, "--out", out)
    assert result.exit_code == 0, result.stderr
    record = json.loads(
        (out / f"{'mean' if command == 'mean' else 'model'}.json").read_text(encoding="utf-8")
    )
    book = run("ledger", "show", ledger, "--json").stdout
    shown = {
        "words": SEEDED in flat(result.stdout),
        "file": record["privacy"]["seeded"],
        "report": "from a SEED" in (out / "report.html").read_text(encoding="utf-8"),
        "ledger": "from a seed" in book,
    }
    assert set(shown.values()) == {bool(seed)}, shown


def test_the_json_answer_names_the_seed(data: Path) -> None:
    for seed in ((), ("--seed", "0")):
        record = json.loads(run("mean", data, *MEAN, *seed, "--json").stdout)
        assert record["privacy"]["seeded"] == bool(seed)
