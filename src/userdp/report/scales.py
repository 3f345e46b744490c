"""Axes: from a number to a position in percent, and round numbers to mark it with."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from userdp.report.numbers import plain


@dataclass(frozen=True)
class Tick:
    """A marked place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """An interval of numbers laid out from 0% to 100%, evenly or by ratios."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value in percent."""
        return _position(value, self.low, self.high, self.logarithmic)


def linear_axis(values: Iterable[float], *, with_zero: bool = False) -> Axis:
    """Span all values with an even axis and a little air.

    Examples
    --------
    >>> axis = linear_axis([-0.4, 1.1], with_zero=True)
    >>> [tick.label for tick in axis.ticks]
    ['−0.5', '0', '0.5', '1.0']
    """
    values = [*values, *([0.0] if with_zero else [])]
    low, high = min(values), max(values)
    air = 0.08 * (high - low) or 0.5 * abs(low) or 1.0
    # Zero stays the edge where all values lie on one side of it.
    keep_zero = with_zero and low < high
    low = low if keep_zero and low == 0 else low - air
    high = high if keep_zero and high == 0 else high + air
    step = _round_step((high - low) / 5)
    marks = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Axis(low, high, tuple(Tick(_position(m, low, high, False), _label(m, step)) for m in marks))


def log_axis(values: Iterable[float]) -> Axis:
    """Span positive values by ratios; mark powers of ten, or 1-2-5 where those are few.

    Examples
    --------
    >>> [tick.label for tick in log_axis([1e3, 1e6]).ticks]
    ['1,000', '10,000', '100,000', '1,000,000']
    """
    values = list(values)
    low, high = min(values) / 1.25, max(values) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    leading = (1,) if math.log10(high / low) > 2.2 else (1, 2, 5)
    marks = [k * 10.0**p for p in powers for k in leading if low <= k * 10.0**p <= high]
    if len(marks) > 7:
        marks = marks[:: math.ceil(len(marks) / 7)]
    return Axis(low, high, tuple(Tick(_position(m, low, high, True), plain(m)) for m in marks), True)


def percent_axis() -> Axis:
    """Return the axis of probabilities, 0% to 100%."""
    return Axis(0.0, 1.0, tuple(Tick(p, f"{p:g}%") for p in (0.0, 25.0, 50.0, 75.0, 100.0)))


def _position(value: float, low: float, high: float, logarithmic: bool) -> float:
    if logarithmic:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return round(100 * (value - low) / (high - low), 3)


def _label(mark: float, step: float) -> str:
    """Write a mark with as many decimals as tell it from its neighbours."""
    decimals = max(-math.floor(math.log10(step)), 0)
    if mark == 0 or decimals > 6 or abs(mark) >= 1e9:
        return plain(mark)
    return f"{mark:,.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def _round_step(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= step * (1 - 1e-9))
