"""A line chart of learning curves, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from slime.utils.line_chart import COLOURS, LineChart, Points, words

GREY = COLOURS[-1]


def chart(curves: Mapping[str, Points], title: str, target: float) -> str:
    """Returns a chart of preference (0 to 1) over sessions, one line a name, with a dashed line at the target."""
    last = math.ceil(max((x for curve in curves.values() for x, _ in curve), default=1))
    drawn = LineChart(last, width=760, height=420, top=24, right=190)
    step = next(size for size in (5, 10, 20, 50, 100, 10**9) if last / size <= 10)
    parts = [
        words(drawn.left, drawn.top - 8, title, "start"),
        *drawn.axes(step, "sessions of each person"),
        drawn.line([(0, target), (last, target)], GREY, dashed=True),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(drawn.line(curve, colour))
        y = drawn.top + 14 + 18 * number
        x = drawn.width - drawn.right + 14
        parts.append(f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(words(x + 24, y, name, "start"))
    return drawn.svg(parts)
