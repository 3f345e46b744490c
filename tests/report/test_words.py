import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.examples import CERTIFIED, CLAIMED, MEAN, SEEDED
from userdp.report import words
from userdp.report.attacker import Attacker
from userdp.report.numbers import measured, odds, one_in, percent_up, plain, rounded_up


def headlines(**changes):
    content = dataclasses.replace(MEAN, statement=dataclasses.replace(CERTIFIED, **changes))
    return [banner.headline for banner in words.banners(content)]


def test_an_ordinary_release_has_no_banner():
    assert headlines() == []


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"seeded": True}, "protects nobody"),
        ({"certified": False}, "Not certified"),
        ({"epsilon": 12.0}, "next to nothing"),
        ({"delta": 1e-3}, "large for 4,037 users"),
    ],
)
def test_the_statement_alone_raises_the_banner(changes, headline):
    assert len(headlines(**changes)) == 1
    assert headline in headlines(**changes)[0]


def test_the_gravest_comes_first_and_the_callers_last():
    content = dataclasses.replace(
        MEAN, statement=dataclasses.replace(CLAIMED, seeded=True), warnings=("halted",)
    )
    found = words.banners(content)
    assert "protects nobody" in found[0].headline
    assert found[-1].reason == "halted"


def test_the_promise_is_as_strong_as_it_is():
    assert words.promise(CERTIFIED).startswith("This release is differentially private for each aircraft")
    assert "claimed, not proven" in words.promise(CLAIMED)
    assert "This one is not" in words.promise(SEEDED)


def test_numbers_of_the_promise():
    told = {figure.title: figure.value for figure in words.figures(CLAIMED, Attacker.against(CLAIMED))}
    assert told == {
        "Odds of an outcome": "× 2.72",
        "Guess between two candidates": "73.2%",
        "Detection at 5% false alarms": "13.6%",
    }


def test_an_unknown_adjacency_is_quoted():
    statement = dataclasses.replace(CERTIFIED, adjacency="add or remove one user")
    assert any("add or remove one user" in answer for _, answer in words.who_is_protected(statement))


def number(text):
    return float(text.replace(",", "").replace("−", "-"))


@given(st.floats(1e-3, 19.9))
def test_odds_never_understate(epsilon):
    assert math.exp(epsilon) * (1 - 1e-8) <= number(odds(epsilon)) <= math.exp(epsilon) * 1.011


@given(st.floats(1e-300, 1.0))
def test_chances_never_understate(p):
    text = one_in(p)
    told = float(text[:-1]) / 100 if text.endswith("%") else 1 / number(text.removeprefix("1 in "))
    assert p * (1 - 1e-8) <= told <= max(p * 1.011, p + 0.001)


@given(st.floats(0, 1))
def test_percentages_never_understate(p):
    assert p - 1e-11 <= float(percent_up(p)[:-1]) / 100 <= p + 0.001


@given(st.floats(-1e12, 1e12), st.one_of(st.none(), st.floats(1e-9, 1e9)))
def test_a_measured_number_reads_as_itself(value, noise):
    text = number(measured(value, noise))
    assert text == pytest.approx(value, rel=1e-3, abs=0.06 * noise if noise else 1e-12)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.1 + 0.2, "0.3"), (999999.99, "1,000,000"), (1e300, "1e+300")]
)
def test_plain_numbers(value, text):
    assert plain(value) == text


def test_rounding_up_keeps_round_numbers():
    assert [rounded_up(x) for x in (1.0, 100.0, 2.5, 1.0001)] == ["1", "100", "2.5", "1.01"]
