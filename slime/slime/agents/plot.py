"""pass@1 over rollouts as an SVG text, with its interval as a band."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from slime.agents.scores import Evaluation

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 56, 36, 24, 48
BLUE, ORANGE = "#0072b2", "#d55e00"  # of Okabe and Ito, told apart without colour vision


def curve(evaluations: Sequence[Evaluation]) -> str:
    """pass@1 with its 95 % band, and the share of attempts that called a tool, of one data set."""
    known = [found for found in evaluations if found.solved]
    last = max([1, *(found.rollout_id for found in known)])
    scores = [(found.rollout_id, found.pass_at(1)) for found in known]
    upper = [_point(x, score.high, last) for x, score in scores]
    lower = [_point(x, score.low, last) for x, score in reversed(scores)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        *_axes(last),
        f'<polygon points="{_joined([*upper, *lower])}" fill="{BLUE}" fill-opacity="0.2"/>',
        _line([_point(x, score.value, last) for x, score in scores], BLUE),
        _line(
            [_point(found.rollout_id, found.tool_use, last) for found in known],
            ORANGE,
            ' stroke-dasharray="5 4"',
        ),
        _text(LEFT, TOP - 16, f"{escape(evaluations[0].dataset)}: pass@1 with 95 % interval", "start", BLUE),
        _text(WIDTH - RIGHT, TOP - 16, "share that called a tool", "end", ORANGE),
    ]
    return "\n".join([*parts, "</svg>\n"])


def _axes(last: int) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="black"/>']
    for tick in range(0, 11, 2):
        x, y = _point(0, tick / 10, last)
        parts.append(_text(x - 6, y + 4, f"{tick / 10:.1f}", "end"))
    step = max(1, round(last / 8))
    for tick in range(0, last + 1, step):
        x, y = _point(tick, 0, last)
        parts.append(_text(x, y + 18, str(tick), "middle"))
    parts.append(_text((LEFT + right) / 2, HEIGHT - 10, "rollouts", "middle"))
    return parts


def _point(rollout: float, share: float, last: int) -> tuple[float, float]:
    x = LEFT + (WIDTH - RIGHT - LEFT) * rollout / last
    return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _line(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    return f'<polyline points="{_joined(points)}" fill="none" stroke="{colour}" stroke-width="2"{more}/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
