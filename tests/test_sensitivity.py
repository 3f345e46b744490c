"""The other constants that are tried are those of the code as it is, and the published table is of them."""

import ast
import json
import tomllib

import numpy as np
import pytest

from benchmarks.measure import RESULTS
from benchmarks.mutants import ROOT, SOURCES, replaced_once
from benchmarks.sensitivity import CATALOGUE, log_ratio, ratios, with_change
from benchmarks.sensitivity_fits import FITS, SAMPLES

CHANGES = tomllib.loads(CATALOGUE.read_text())["change"]
SETTINGS = [("flights", "regression", 500, 1.0), ("jester", "classification", 500, 1.0)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["name"])
def test_a_change_can_be_made(change):
    text = (ROOT / SOURCES / change["file"]).read_text()
    changed = replaced_once(text, change["old"], change["new"], change["file"])
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


def test_the_sources_with_a_change_differ_in_one_file(tmp_path):
    tree = with_change(CHANGES[0], tmp_path / "tree")
    differing = [
        file.relative_to(tree)
        for file in tree.rglob("*.py")
        if file.read_text() != (ROOT / SOURCES.parent / file.relative_to(tree)).read_text()
    ]
    assert [str(file) for file in differing] == [f"userdp/{CHANGES[0]['file']}"]


def test_ratios_are_geometric_means_of_floored_losses():
    fits = SAMPLES * FITS
    usual = {SETTINGS[0]: np.full(fits, 0.01), SETTINGS[1]: np.full(fits, 1e-4)}
    changed = {SETTINGS[0]: np.full(fits, 0.04), SETTINGS[1]: np.full(fits, -1.0)}
    assert log_ratio(changed, usual, SETTINGS, np.arange(fits)) == pytest.approx(np.log(2))
    with pytest.warns(RuntimeWarning):  # tables without a setting here
        found = ratios(changed, usual)
    assert found["ratio"] == pytest.approx(2)
    assert found["standard_error"] == pytest.approx(0)
    assert (found["flights"], found["classification"]) == pytest.approx((4, 1))


def test_the_committed_table_is_of_these():
    found = json.loads((RESULTS / "sensitivity.json").read_text())
    assert list(found["changes"]) == [change["name"] for change in CHANGES]
