"""A line chart of learning curves, as SVG text; no library is needed for twenty lines and two axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

Curve = Sequence[tuple[float, float]]

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 56, 24, 190, 48
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's colours, which can be told apart without colour vision."""


def chart(curves: Mapping[str, Curve], title: str, target: float) -> str:
    """Preference (0 to 1) over sessions, one line a name, with a dashed line at the target."""
    last = math.ceil(max((x for curve in curves.values() for x, _ in curve), default=1))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, TOP - 8, title, "start"),
        *_axes(last),
        _line([(0, target), (last, target)], last, "#999999", dashed=True),
    ]
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(_line(curve, last, colour))
        y = TOP + 14 + 18 * number
        x = WIDTH - RIGHT + 14
        parts.append(f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x + 24, y, name, "start"))
    return "\n".join([*parts, "</svg>\n"])


def _axes(last: int) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="black"/>']
    for tick in range(0, 11, 2):
        x, y = _point(0, tick / 10, last)
        parts.append(_text(x - 6, y + 4, f"{tick / 10:.1f}", "end"))
    step = next(size for size in (5, 10, 20, 50, 100, 10**9) if last / size <= 10)
    for tick in range(0, last + 1, step):
        x, y = _point(tick, 0, last)
        parts.append(_text(x, y + 18, str(tick), "middle"))
    parts.append(_text((LEFT + right) / 2, HEIGHT - 10, "sessions of each person", "middle"))
    return parts


def _line(curve: Curve, last: int, colour: str, dashed: bool = False) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_point(*pair, last) for pair in curve))
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _point(sessions: float, share: float, last: int) -> tuple[float, float]:
    x = LEFT + (WIDTH - RIGHT - LEFT) * sessions / max(last, 1)
    return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
