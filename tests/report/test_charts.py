import dataclasses

import pytest

from tests.report.examples import CERTIFIED, CLAIMED, CURVES, HOSTILE, MEAN, MODEL
from userdp.errors import InvalidInputError
from userdp.privacy import Spend
from userdp.report import CurvePoint, ErrorCurve, Released
from userdp.report.attacker import Attacker
from userdp.report.charts import MOST_VALUES, attack_chart, budget_bars, error_chart, strip_chart
from userdp.report.scales import linear_axis, log_axis


def test_intervals_are_two_standard_deviations_wide_and_inside_the_picture():
    chart = strip_chart(MEAN)
    (delay, *_) = chart.every
    assert (delay.name, delay.value, delay.noise, delay.interval) == (
        "dep_delay",
        "11.85",
        "0.18",
        "11.49 to 12.21",
    )
    assert all(0 <= strip.low < strip.at < strip.high <= 100 for strip in chart.every)
    width = (delay.high - delay.low) / 100 * (chart.axis.high - chart.axis.low)
    assert width == pytest.approx(2 * 1.96 * 0.1834, rel=1e-3)


def test_a_long_model_shows_its_largest_numbers_in_their_order_around_zero():
    chart = strip_chart(MODEL)
    assert len(chart.every) == 60
    assert len(chart.shown) == MOST_VALUES
    names = [strip.name for strip in chart.shown]
    assert names == [strip.name for strip in chart.every if strip.name in names]
    assert min(abs(float(s.value.replace("−", "-"))) for s in chart.shown) >= 1.3
    assert 0 <= chart.zero <= 100
    assert chart.shown[0].interval is None


def test_a_number_without_a_name_is_called_so():
    assert strip_chart(HOSTILE).every[-1].name == "(no name)"


def test_the_budget_is_drawn_in_its_three_currencies():
    gaussian, pure, failure = budget_bars(CERTIFIED)
    assert [part.share for part in gaussian.segments] == ["6%", "94%"]
    assert [(part.name, part.share) for part in pure.segments] == [
        ("radius", "8.9%"),
        ("left for the Gaussian noise", "91.1%"),
    ]
    assert failure.segments[0].share == "4.2%"
    for bar in (gaussian, pure, failure):
        assert sum(part.width for part in bar.segments) == pytest.approx(100, abs=0.01)


def test_a_claims_budget_has_no_gaussian_bar():
    assert [bar.title for bar in budget_bars(CLAIMED)] == ["Epsilon = 1", "Delta = 1e-06"]
    assert [part.share for part in budget_bars(CLAIMED)[0].segments] == ["50%", "50%"]


def test_a_bar_never_overflows():
    spent = tuple(Spend(f"part {k}", epsilon=0.3) for k in range(10))
    (bar,) = budget_bars(dataclasses.replace(CLAIMED, spent=spent))
    assert bar.segments[-1].start + bar.segments[-1].width == pytest.approx(100, abs=0.01)


def test_no_spends_no_bars():
    assert budget_bars(dataclasses.replace(CLAIMED, spent=())) == ()


def test_the_attack_curve_lies_above_chance():
    chance, release = attack_chart(Attacker.against(CERTIFIED)).lines
    assert chance.marks == ()
    assert all(100 - y >= x for x, y in release.path)
    (marked,) = [mark for mark in release.marks if mark.callout]
    assert marked.x == 5
    assert marked.callout == "5% → at most 8.1%"


def test_error_curves_mark_the_present_release_once():
    chart = error_chart(CURVES, "noise")
    (here,) = [mark for line in chart.lines for mark in line.marks if mark.callout]
    assert here.label == "epsilon = 1, 4,037 users: noise 0.183 (this release)"
    assert all(0 <= mark.x <= 100 and 0 <= mark.y <= 100 for line in chart.lines for mark in line.marks)


@pytest.mark.parametrize(
    "values",
    [[3.0], [0.0], [1e-12, 2e-12], [-5.0, -5.0], [1e6, 1e6 + 0.4], [-1e15, 1e15], [3.0, 3.0 + 4e-16]],
)
def test_linear_axes_hold_their_values_and_name_marks_apart(values):
    for with_zero in (False, True):
        axis = linear_axis(values, with_zero=with_zero)
        assert all(0 <= axis.at(value) <= 100 for value in values)
        labels = [tick.label for tick in axis.ticks]
        assert len(labels) >= 1
        assert len(set(labels)) == len(labels) or max(values) - min(values) < 1e-9


@pytest.mark.parametrize("values", [[1.0], [1e-9, 1e9], [900, 1100], [1000, 8000]])
def test_log_axes_hold_their_values_with_a_few_marks(values):
    axis = log_axis(values)
    assert all(0 <= axis.at(value) <= 100 for value in values)
    assert 1 <= len(axis.ticks) <= 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Released("a", float("nan")), "finite"),
        (lambda: Released("a", 1.0, -1.0), "standard deviation"),
        (lambda: CurvePoint(0, 1.0), "positive number of users"),
        (lambda: CurvePoint(10, float("inf")), "leave out"),
        (lambda: ErrorCurve(1.0, ()), "no points"),
        (lambda: dataclasses.replace(HOSTILE, released=()), "at least one"),
        (lambda: dataclasses.replace(HOSTILE, kind="median"), '"model" or "mean"'),
    ],
)
def test_content_that_cannot_be_drawn_is_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
