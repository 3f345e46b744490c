"""Committed measurements: tables and figures say what the rows say, and every row is of a known system."""

import json
from pathlib import Path

import pytest

from benchmarks import table1
from benchmarks.curves import growth_curves
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


def test_a_dagger_marks_where_the_authors_own_condition_does_not_hold(rows):
    text = table(rows, methods(), vars(table1.BASE), table1.RANGES, vars(table1.TINY))
    lines = [line for line in text.splitlines() if line.startswith("| Asi & Liu 2023")]
    # Against n and epsilon of both problems: 40 log(4T/delta)/epsilon users lie between the first two sizes.
    assert [i for i, line in enumerate(lines) if "†" in line][:4] == [0, 3, 4, 7]
    assert all(line.count("†") == 1 for line in (lines[0], lines[3], lines[4], lines[7]))
    assert methods()["paper"].claimed(609, 1.0, 1)
    assert not methods()["paper"].claimed(608, 1.0, 1)
    assert not methods()["paper"].claimed(10_000, 10.0, 1)
    assert text.count("†") == sum(line.count("†") for line in lines)


def test_the_curves_of_growth_are_made_from_the_rows():
    result = json.loads((RESULTS / "speed.json").read_text())
    curves = growth_curves(
        {name: result[name] for name in ("users", "items", "features")}, "What a round costs"
    )
    assert (RESULTS / "speed.svg").read_text() == curves
    for name in ("users", "items", "features"):
        assert f"{name}: exponent {result[name]['exponent']:.2f}" in curves
