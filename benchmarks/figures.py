"""Small multiples as plain SVG: risk against n, m, d and epsilon, a line per system, crosses where one refused."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.methods.method import Method

WIDTH, HEIGHT, GAP, LEFT, TOP, BOTTOM = 250, 250, 62, 56, 46, 40
CROSS_ROW = 12
# Risks beyond 10^MOST are drawn at the top edge: the answer is worth nothing there.
MOST = 0
COLOURS = (
    "#0b7285", "#0b7285", "#d9480f", "#5f3dc4", "#c2255c", "#2b8a3e",
    "#868e96", "#e67700", "#a87900", "#1864ab", "#4dabf7", "#adb5bd",
)  # fmt: skip
DASHES = ("", "6 3", "", "", "", "", "2 2", "6 3", "2 3", "", "6 3", "3 3")
TITLES = {"n": "users n", "m": "items per user m", "d": "dimension d", "epsilon": "epsilon"}


def panels(
    rows: Sequence[Mapping[str, Any]],
    methods: Mapping[str, Method],
    base: Mapping[str, float],
    ranges: Mapping[str, Sequence[float]],
) -> str:
    """Draw one panel per range, all on the same vertical axis, and a legend."""
    rows = [row for row in rows if sum(row[axis] != base[axis] for axis in base) <= 1]
    risks = [row["excess_risk"] for row in rows if row.get("excess_risk")]
    low = math.floor(math.log10(min(risks)))
    high = min(math.ceil(math.log10(max(risks))), MOST)
    width = LEFT + len(ranges) * (WIDTH + GAP)
    legend_rows = -(-len(methods) // 4)
    height = TOP + HEIGHT + BOTTOM + 18 * legend_rows + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>Excess risk of {len(methods)} systems against n, m, d and epsilon</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, axis in enumerate(ranges):
        parts += _panel(LEFT + i * (WIDTH + GAP), axis, rows, methods, base, ranges[axis], (low, high))
    for k, method in enumerate(methods.values()):
        x, y = LEFT + (k % 4) * (width - LEFT) / 4, TOP + HEIGHT + BOTTOM + 14 + 18 * (k // 4)
        parts.append(_line([(x, y - 4), (x + 24, y - 4)], k))
        parts.append(f'<text x="{x + 30:.0f}" y="{y:.0f}" fill="#333">{escape(method.label)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    left: float,
    axis: str,
    rows: Sequence[Mapping[str, Any]],
    methods: Mapping[str, Method],
    base: Mapping[str, float],
    values: Sequence[float],
    decades: tuple[int, int],
) -> list[str]:
    low, high = decades
    first, last = math.log(values[0]), math.log(values[-1])

    def across(value: float) -> float:
        return left + 28 + (WIDTH - 56) * (math.log(value) - first) / (last - first)

    def down(risk: float) -> float:
        return TOP + HEIGHT * max(high - math.log10(risk), 0) / (high - low)

    parts = [
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ced4da"/>',
        f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 34}" text-anchor="middle" fill="#333">{TITLES[axis]}</text>',
    ]
    for power in range(low, high + 1):
        y = down(10.0**power)
        parts.append(f'<path d="M{left} {y:.1f}H{left + WIDTH}" stroke="#f1f3f5"/>')
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#666">10'
            f'<tspan dy="-4" font-size="9">{power}</tspan></text>'
        )
    parts += [
        f'<text x="{across(value):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle" fill="#666">{value:g}</text>'
        for value in values
    ]
    for k, name in enumerate(methods):
        points = []
        for value in values:
            at = {**base, axis: value}
            row = next(
                (row for row in rows if row["method"] == name and all(row[key] == at[key] for key in at)),
                None,
            )
            if row is None:
                continue
            if row.get("excess_risk"):
                points.append((across(value), down(row["excess_risk"])))
            elif row["status"] in ("refused", "halted"):
                parts.append(_cross(across(value) + 4 * (k - 5.5), TOP - CROSS_ROW, k))
        parts.append(_line(points, k))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[k]}"/>' for x, y in points]
    parts.append(
        f'<text x="{left}" y="{TOP - CROSS_ROW - 10}" fill="#666" font-size="11">× refused or halted</text>'
    )
    return parts


def _line(points: Sequence[tuple[float, float]], k: int) -> str:
    if len(points) < 2:
        return ""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{DASHES[k]}"' if DASHES[k] else ""
    width = 3 if k == 0 else 1.6
    return f'<path d="{path}" fill="none" stroke="{COLOURS[k]}" stroke-width="{width}"{dash}/>'


def _cross(x: float, y: float, k: int) -> str:
    return f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" stroke="{COLOURS[k]}" stroke-width="1.6" fill="none"/>'
