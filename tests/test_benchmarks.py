"""Committed measurements: tables and figures say what the rows say, and every row is of a known system."""

import json
from pathlib import Path

import pytest

from benchmarks import table1
from benchmarks.figures import panels
from benchmarks.methods import methods
from benchmarks.tables import table
from benchmarks.tasks import PROBLEMS

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks/results"


@pytest.fixture(scope="module")
def rows():
    return json.loads((RESULTS / "table1.json").read_text())["rows"]


def test_table_1_has_every_system_at_every_size(rows):
    measured = {(row["problem"], row["n"], row["m"], row["d"], row["epsilon"], row["method"]) for row in rows}
    expected = {
        (problem, size.n, size.m, size.d, size.epsilon, method)
        for problem, size, method in table1.experiments()
    }
    assert measured == expected
    assert all(row["status"] == "ran" or row["note"] for row in rows)


def test_the_table_and_the_figures_are_made_from_the_rows(rows):
    base, known = vars(table1.BASE), methods()
    text = table(rows, known, base, table1.RANGES, vars(table1.TINY))
    assert (RESULTS / "table1.md").read_text().startswith(text.rstrip())
    for problem in PROBLEMS:
        figure = panels([row for row in rows if row["problem"] == problem], known, base, table1.RANGES)
        assert (RESULTS / f"table1-{problem}.svg").read_text() == figure
