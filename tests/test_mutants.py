"""The planted bugs still fit the code; ``make mutants`` plants them and sees that tests notice."""

import ast
import json

import pytest

from benchmarks.measure import RESULTS
from benchmarks.mutants import ROOT, SOURCES, catalogue

MUTANTS = catalogue()


def test_there_are_many_and_no_two_have_one_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_can_be_planted_and_its_tests_exist(mutant):
    text = (ROOT / SOURCES / mutant.file).read_text(encoding="utf-8")
    planted = mutant.planted_in(text)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(text))
    assert all((ROOT / tests.partition("::")[0]).is_file() for tests in mutant.tests)


def test_the_committed_table_is_of_these_and_all_were_noticed():
    found = json.loads((RESULTS / "mutants.json").read_text(encoding="utf-8"))
    assert [mutant["name"] for mutant in found["mutants"]] == [mutant.name for mutant in MUTANTS]
    assert all(mutant["killed_by"] for mutant in found["mutants"])
    assert found["killed"] == found["planted"] == len(MUTANTS)
