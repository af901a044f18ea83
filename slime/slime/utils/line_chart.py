"""The frame of a line chart of shares (0 to 1) as SVG: axes, points, lines, text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's colours, which remain distinct without colour vision."""

Points = Sequence[tuple[float, float]]
DASHED = ' stroke-dasharray="5 4"'


@dataclass(frozen=True)
class LineChart:
    """Sizes in pixels; `last` is the largest value on the horizontal axis, which starts at 0."""

    last: float
    width: int = 640
    height: int = 360
    left: int = 56
    top: int = 36
    right: int = 24
    bottom: int = 48

    def svg(self, parts: Iterable[str]) -> str:
        """Returns the parts on a white background, as one document."""
        ground = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        )
        return "\n".join([ground, *parts, "</svg>\n"])

    def axes(self, step: int, name: str) -> list[str]:
        """Returns both axes: a tick every 0.2 upwards and every `step` to the right; `name` labels the horizontal
        axis."""
        base, end = self.height - self.bottom, self.width - self.right
        parts = [f'<path d="M{self.left} {self.top}V{base}H{end}" fill="none" stroke="black"/>']
        for tick in range(0, 11, 2):
            x, y = self.point(0, tick / 10)
            parts.append(words(x - 6, y + 4, f"{tick / 10:.1f}", "end"))
        for tick in range(0, int(self.last) + 1, step):
            x, y = self.point(tick, 0)
            parts.append(words(x, y + 18, str(tick), "middle"))
        return [*parts, words((self.left + end) / 2, self.height - 10, name, "middle")]

    def point(self, value: float, share: float) -> tuple[float, float]:
        """Returns the position of (value, share), in pixels from the upper left corner."""
        wide = self.width - self.right - self.left
        high = self.height - self.bottom - self.top
        return self.left + wide * value / max(self.last, 1), self.height - self.bottom - high * share

    def line(self, points: Points, colour: str, dashed: bool = False) -> str:
        return (
            f'<polyline points="{self._joined(points)}" fill="none" stroke="{colour}" stroke-width="2"'
            f"{DASHED if dashed else ''}/>"
        )

    def band(self, points: Points, colour: str) -> str:
        """Returns the area enclosed by `points`, pale enough that lines on it remain readable."""
        return f'<polygon points="{self._joined(points)}" fill="{colour}" fill-opacity="0.2"/>'

    def _joined(self, points: Points) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.point(*pair) for pair in points))


def words(x: float, y: float, text: str, anchor: str, colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
