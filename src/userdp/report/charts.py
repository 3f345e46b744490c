"""The page's pictures as plain geometry: positions in percent, and the words each mark speaks.

Why not plotly: its only bundled script is 4.8 MB per report, its marks cannot be reached by keyboard or read
by a screen reader, and its pictures keep their size and colours on a phone, in the dark and on paper. These
four pictures are lines and boxes. Drawn as SVG in percent they stretch with the page while their text keeps
its size, a page weighs some 50 kB, and a content security policy can forbid everything else.
"""

from collections.abc import Callable
from dataclasses import dataclass

from userdp.privacy.statement import PrivacyStatement, Spend
from userdp.report.attacker import Attacker
from userdp.report.content import ErrorCurve, Released, ReportContent
from userdp.report.numbers import NORMAL_95, measured, percent_up, plain, share
from userdp.report.scales import Axis, linear_axis, log_axis, percent_axis
from userdp.report.words import FALSE_ALARMS

MOST_VALUES = 24
COLOURS = 6


@dataclass(frozen=True)
class Strip:
    """One released number: a dot, its noise interval, and the same in words."""

    name: str
    value: str
    noise: str | None
    interval: str | None
    at: float
    low: float
    high: float


@dataclass(frozen=True)
class StripChart:
    """Released numbers under each other on one axis; ``shown`` of them are drawn, all are in the table."""

    axis: Axis
    zero: float | None
    shown: tuple[Strip, ...]
    every: tuple[Strip, ...]


@dataclass(frozen=True)
class Segment:
    """A share of a bar; ``cost`` and ``colour`` are None for what is left over."""

    name: str
    cost: str | None
    share: str
    start: float
    width: float
    colour: int | None


@dataclass(frozen=True)
class Bar:
    """One currency of the budget and what it went to."""

    title: str
    note: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Mark:
    """A point of a line that can be pointed at.

    ``label`` is what it says, ``value`` its height for the table, ``callout`` what is written beside it.
    """

    x: float
    y: float
    label: str
    value: str
    callout: str | None = None


@dataclass(frozen=True)
class Line:
    """A named line and its marks."""

    name: str
    colour: int | None
    path: tuple[tuple[float, float], ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class LineChart:
    """Lines over two axes."""

    x: Axis
    y: Axis
    x_title: str
    y_title: str
    lines: tuple[Line, ...]


def strip_chart(content: ReportContent) -> StripChart:
    """Draw the released numbers, the largest ones where there are too many to look at."""
    intervals = [_interval(released) for released in content.released]
    axis = linear_axis([end for pair in intervals for end in pair], with_zero=content.kind == "model")
    strips = [_strip(*pair, axis) for pair in zip(content.released, intervals, strict=True)]
    by_size = sorted(range(len(strips)), key=lambda i: -abs(content.released[i].value))
    shown = sorted(by_size[:MOST_VALUES])
    zero = axis.at(0.0) if axis.low <= 0 <= axis.high else None
    return StripChart(axis, zero, tuple(strips[i] for i in shown), tuple(strips))


def _interval(released: Released) -> tuple[float, float]:
    reach = NORMAL_95 * (released.noise_std or 0.0)
    return released.value - reach, released.value + reach


def _strip(released: Released, interval: tuple[float, float], axis: Axis) -> Strip:
    std = released.noise_std
    low, high = interval
    return Strip(
        name=released.name if released.name.strip() else "(no name)",
        value=measured(released.value, std),
        noise=None if std is None else plain(std, digits=2),
        interval=None if std is None else f"{measured(low, std)} to {measured(high, std)}",
        at=axis.at(released.value),
        low=axis.at(low),
        high=axis.at(high),
    )


def budget_bars(statement: PrivacyStatement) -> tuple[Bar, ...]:
    """Draw what the budget went to, one bar for each of its currencies that was used.

    Parts of one currency add up (mu by squares); mu, epsilon and delta are not worth fixed amounts of each
    other, so they are not mixed in one bar.
    """
    gaussian = statement.mu > 0
    rest = "left for the Gaussian noise" if gaussian else "not spent"
    bars = (
        _bar(
            statement.spent,
            lambda spend: spend.mu**2,
            lambda spend: f"mu = {plain(spend.mu, digits=3)}",
            title=f"Gaussian noise: mu = {plain(statement.mu, digits=3)}",
            note="What the parts with Gaussian noise cost; squares add up, so shares are of mu squared.",
            rest=rest,
        ),
        _bar(
            statement.spent,
            lambda spend: spend.epsilon / statement.epsilon,
            lambda spend: f"epsilon = {plain(spend.epsilon, digits=3)}",
            title=f"Epsilon = {plain(statement.epsilon)}",
            note="What the parts without Gaussian noise cost; it adds up." if gaussian else "Parts add up.",
            rest=rest,
            whole=1.0,
        ),
        _bar(
            statement.spent,
            lambda spend: spend.delta / statement.delta,
            lambda spend: f"delta = {plain(spend.delta, digits=3)}",
            title=f"Delta = {statement.delta:g}",
            note="The chance that a part fails; it adds up.",
            rest=rest,
            whole=1.0,
        ),
    )
    return tuple(bar for bar in bars if any(segment.colour is not None for segment in bar.segments))


def _bar(
    spent: tuple[Spend, ...],
    weight: Callable[[Spend], float],
    cost: Callable[[Spend], str],
    *,
    title: str,
    note: str,
    rest: str,
    whole: float = 0.0,
) -> Bar:
    """Lay the parts along a bar; what is missing to ``whole`` is left over."""
    total = max(sum(weight(spend) for spend in spent), whole) or 1.0
    segments, start = [], 0.0
    for colour, spend in enumerate(spent):
        if weight(spend) > 0:
            part = weight(spend) / total
            width = 100 * part
            segments.append(
                Segment(
                    spend.name, cost(spend), share(part), round(start, 3), round(width, 3), colour % COLOURS
                )
            )
            start += width
    left = 1 - start / 100
    if left > 1e-6:
        segments.append(Segment(rest, None, share(left), round(start, 3), round(100 * left, 3), None))
    return Bar(title, note, tuple(segments))


def attack_chart(attacker: Attacker) -> LineChart:
    """Draw the most an attacker can detect against the false alarms it costs."""
    axis = percent_axis()
    bounds = {rate: attacker.detection(rate) for rate in (k / 100 for k in range(101))}
    curve = {rate: (axis.at(rate), round(100 - axis.at(bound), 3)) for rate, bound in bounds.items()}
    marks = tuple(
        Mark(
            *curve[rate],
            f"{rate:.0%} false alarms: at most {percent_up(bounds[rate])} detected",
            percent_up(bounds[rate]),
            f"{rate:.0%} → at most {percent_up(bounds[rate])}" if rate == FALSE_ALARMS else None,
        )
        for rate in (0.01, FALSE_ALARMS, *(k / 10 for k in range(1, 10)))
    )
    return LineChart(
        axis,
        axis,
        "false alarms",
        "detected at most",
        (
            Line("by chance", None, ((0.0, 100.0), (100.0, 0.0))),
            Line("with this release", 0, tuple(curve.values()), marks),
        ),
    )


def error_chart(curves: tuple[ErrorCurve, ...], label: str) -> LineChart:
    """Draw the planner's error against the number of users, both by ratios."""
    x = log_axis(point.n_users for curve in curves for point in curve.points)
    y = log_axis(point.error for curve in curves for point in curve.points)
    return LineChart(
        x, y, "users", label, tuple(_error_line(curve, k, x, y, label) for k, curve in enumerate(curves))
    )


def _error_line(curve: ErrorCurve, colour: int, x: Axis, y: Axis, label: str) -> Line:
    name = f"epsilon = {plain(curve.epsilon)}"
    points = sorted(curve.points, key=lambda point: point.n_users)
    marks = tuple(
        Mark(
            x.at(point.n_users),
            round(100 - y.at(point.error), 3),
            f"{name}, {point.n_users:,} users: {label} {plain(point.error, digits=3)}"
            + (" (this release)" if point.here else ""),
            plain(point.error, digits=3),
            "this release" if point.here else None,
        )
        for point in points
    )
    return Line(name, colour % COLOURS, tuple((mark.x, mark.y) for mark in marks), marks)
