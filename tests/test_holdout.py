"""The suite of tables beside the four of the peers: its arithmetic, and that the committed table is whole."""

import json

import pytest

from benchmarks.holdout.publish import LOOKED_AT, excess, geometric_mean, page, ratio, to_constant
from benchmarks.holdout.run import TABLES
from benchmarks.holdout.tables import SOURCE_OF
from benchmarks.measure import RESULTS
from benchmarks.peers.objective import FLOOR
from benchmarks.peers.problem import EPSILONS, TASKS

ROWS = json.loads((RESULTS / "holdout.json").read_text())["rows"]


def row(losses, tuned, reference=0.5, **others):
    named = {
        "table": "wages",
        "task": "regression",
        "users": 500,
        "epsilon": 1.0,
        "n_mu": 118.0,
        "constant": 0.8,
    }
    return named | {"losses": losses, "tuned_losses": tuned, "reference": reference} | others


def test_a_ratio_is_one_of_floored_excess_losses():
    assert ratio(row([0.58, 0.62], [0.54, 0.56])) == pytest.approx(2.0)
    assert excess(row([0.4], [0.6]), "losses") == FLOOR
    assert ratio(row([0.4], [0.4])) == 1
    assert to_constant(row([0.9, 0.7], [0.6])) == pytest.approx(1.0)


def test_a_geometric_mean_is_over_settings():
    assert geometric_mean([row([0.6], [0.55]), row([0.55], [0.6])]) == pytest.approx(1.0)


def test_a_page_has_a_line_for_every_table_that_was_measured_and_names_the_worst():
    lines = page([row([0.6], [0.55]), row([0.6], [0.55], task="classification", users=700)])
    assert "| wages | 700 | 2.00 | 2.00 | 2.00 | 0.75 |" in lines
    assert not any("airfare" in line for line in lines)
    assert lines[-1].endswith("| 2.0 |")


def test_every_table_has_a_source_and_was_looked_at_once():
    assert sorted(TABLES) == sorted(SOURCE_OF)
    assert len(set(TABLES)) == len(TABLES) == sum(map(len, LOOKED_AT.values()))


def test_the_committed_rows_are_whole():
    settings = {(r["table"], r["task"], r["users"], r["epsilon"]) for r in ROWS}
    assert {table for table, *_ in settings} == set(TABLES)
    for table in TABLES:
        users = {r["users"] for r in ROWS if r["table"] == table}
        expected = {(table, task, n, epsilon) for task in TASKS for n in users for epsilon in EPSILONS}
        assert expected <= settings
    assert all(len(r["losses"]) == 5 and len(r["tuned_losses"]) == 8 for r in ROWS)
