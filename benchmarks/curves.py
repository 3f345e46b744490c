"""How a round's cost grows, as plain SVG that follows the reader's light or dark colours."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _BOTTOM = 230, 200, 66, 34, 40, 62
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.frame{fill:none;stroke:#bbb}.measured{fill:none;stroke:#00897b;"
    "stroke-width:2}.dot{fill:#00897b}.linear{stroke:#999;stroke-dasharray:4 4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.frame{stroke:#555}}"
)


def growth_curves(ranges: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """Draw one panel for each range, on logarithmic axes, beside a line along which the cost would be linear.

    A range has ``sizes``, triples whose own number is that at the range's place, ``milliseconds`` and an ``exponent``.
    """
    costs = [ms for row in ranges.values() for ms in row["milliseconds"]]
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    width = _LEFT + len(ranges) * (_WIDTH + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_TOP + _HEIGHT + _BOTTOM}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
    ]
    for power in range(low, high + 1):
        y = _TOP + _HEIGHT * (high - power) / (high - low)
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g} ms</text>')
    for i, (name, row) in enumerate(ranges.items()):
        parts += _panel(
            _LEFT + i * (_WIDTH + _GAP), name, [size[i] for size in row["sizes"]], row, (low, high)
        )
    foot = "Dashed: in proportion. Both axes are logarithmic."
    parts.append(f'<text x="{_LEFT}" y="{_TOP + _HEIGHT + 52}">{foot}</text></svg>')
    return "\n".join(parts) + "\n"


def _panel(
    left: float, name: str, sizes: Sequence[float], row: Mapping[str, Any], decades: tuple[int, int]
) -> list[str]:
    costs, (low, high) = row["milliseconds"], decades

    def point(size: float, cost: float) -> str:
        across = (math.log(size) - math.log(sizes[0])) / (math.log(sizes[-1]) - math.log(sizes[0]))
        down = (high - math.log10(cost)) / (high - low)
        return f"{left + 20 + (_WIDTH - 40) * across:.1f} {_TOP + _HEIGHT * down:.1f}"

    measured = [point(*pair) for pair in zip(sizes, costs, strict=True)]
    middle = math.exp(
        sum(math.log(cost / size) for size, cost in zip(sizes, costs, strict=True)) / len(sizes)
    )
    ends = "L".join(point(size, middle * size) for size in (sizes[0], sizes[-1]))
    return [
        f'<rect class="frame" x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{left}" y="{_TOP - 10}">{name}: exponent {row["exponent"]:.2f}</text>',
        f'<path class="linear" d="M{ends}"/><path class="measured" d="M{"L".join(measured)}"/>',
        *(
            f'<circle class="dot" r="3.5" cx="{x}" cy="{y}"/>'
            for x, y in (place.split() for place in measured)
        ),
        *(
            f'<text x="{point(size, cost).split()[0]}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{size:,}</text>'
            for size, cost in ((sizes[0], costs[0]), (sizes[-1], costs[-1]))
        ),
    ]
