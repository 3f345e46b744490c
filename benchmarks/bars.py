"""Horizontal bars as plain SVG that follows the reader's light or dark colours."""

from collections.abc import Sequence
from html import escape

_ROW, _LEFT, _WIDTH, _TOP = 22, 300, 420, 30
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.grid{stroke:#bbb}.claim{stroke:#b3261e;stroke-width:2}"
    ".bar{fill:#00897b}.exact{fill:#222}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.exact{fill:#eee}.grid{stroke:#555}}"
)


def bar_chart(rows: Sequence[tuple[str, float, float | None]], title: str) -> str:
    """Draw one bar a row, a diamond where there is a second number, and a line at 1."""
    reach = max(1.1, *(1.05 * max(value, second or 0.0) for _, value, second in rows))
    height = _TOP + _ROW * len(rows) + 34

    def x(value: float) -> float:
        return round(_LEFT + _WIDTH * value / reach, 1)

    bottom = _TOP + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        kind = "claim" if tick == 1.0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x(tick)}" x2="{x(tick)}" y1="{_TOP - 6}" y2="{bottom}"/>')
        parts.append(f'<text x="{x(tick)}" y="{_TOP - 12}" text-anchor="middle">{tick:g}</text>')
    for number, (name, value, second) in enumerate(rows):
        y = _TOP + _ROW * number
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect class="bar" x="{x(0)}" y="{y + 3}" width="{round(x(value) - x(0), 1)}" height="14">'
            f"<title>{escape(name)}: {value:.2f}</title></rect>"
        )
        if second is not None:
            at = x(second)
            parts.append(
                f'<path class="exact" d="M{at} {y + 4}l6 6l-6 6l-6 -6z"><title>exact: {second:.2f}</title></path>'
            )
    parts.append(
        f'<text x="{_LEFT}" y="{bottom + 22}">{escape(title)}; bars: proven by attack, diamonds: exact</text></svg>'
    )
    return "\n".join(parts) + "\n"
