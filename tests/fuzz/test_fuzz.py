"""A few hundred cases of bad input; ``make fuzz`` runs a hundred thousand."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzzing import FUZZERS, Damage, check_command, check_ledger, check_model, check_reader, folder
from benchmarks.measure import RESULTS


@pytest.mark.parametrize("kind", FUZZERS)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_whatever_comes_is_taken_or_refused_in_one_line(kind, data):
    FUZZERS[kind].check(data.draw(FUZZERS[kind].cases))


def test_what_is_sound_is_taken():
    sound = {name: Damage(name, (folder() / name).read_bytes()) for name in ("table.csv", "table.parquet")}
    assert all(check_reader(case) for case in sound.values())
    assert check_model(Damage("model.json", (folder() / "model.json").read_bytes()))
    assert check_ledger(Damage("ledger.db", (folder() / "ledger.db").read_bytes()))
    assert check_command(["ledger", "show", "@/ledger.db"])
    assert not check_command(["mean", "@/nothing"])


def test_the_committed_run_was_large():
    record = json.loads((RESULTS / "fuzz.json").read_text(encoding="utf-8"))
    assert set(record["kinds"]) == set(FUZZERS)
    assert record["cases"] >= 100_000
