"""Renders a recording as an animated SVG picture, without script, font or further files."""

from __future__ import annotations

import itertools
from html import escape

from claw_lab.recording.cast import Cast
from claw_lab.recording.screen import Row, Screen

CHARACTER, LINE, MARGIN = 8.4, 19, 12  # pixels
FRAME = 0.15  # seconds; output within it is one frame
REST = 4.0  # seconds for which the last frame stays before the picture restarts
STYLE = (
    "text{{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d7dae0;white-space:pre}}.b{{font-weight:bold}}"
    ".r{{fill:#9fc3ff}}#f{{animation:f {seconds:.2f}s steps(1,end) infinite}}@keyframes f{{{keys}}}"
)


def frames(cast: Cast) -> list[tuple[float, tuple[Row, ...]]]:
    """Returns (seconds, rows of the screen from then on), each different from the one before."""
    screen = Screen(cast.width, cast.height)
    pictures: list[tuple[float, tuple[Row, ...]]] = []
    for _, group in itertools.groupby(cast.shortened(), lambda event: int(event[0] / FRAME)):
        events = list(group)
        screen.feed("".join(text for _, text in events))
        rows = screen.rows()
        if not pictures or rows != pictures[-1][1]:
            pictures.append((events[0][0], rows))
    return pictures


def svg(cast: Cast) -> str:
    """Returns the picture: the frames lie side by side and are shown one at a time; repeated rows are drawn once."""
    shown = frames(cast)
    seconds = (shown[-1][0] if shown else 0.0) + REST
    width = round(cast.width * CHARACTER) + 2 * MARGIN
    height = cast.height * LINE + 2 * MARGIN
    known: dict[Row, int] = {}
    parts = []
    for index, (_, rows) in enumerate(shown):
        uses = [
            f'<use href="#r{known.setdefault(row, len(known))}" y="{y * LINE}"/>'
            for y, row in enumerate(rows)
            if any(cell.text != " " for cell in row)
        ]
        parts.append(f'<g transform="translate({index * width})">{"".join(uses)}</g>')
    keys = "".join(
        f"{100 * at / seconds:.3f}%{{transform:translateX({-index * width}px)}}"
        for index, (at, _) in enumerate(shown)
    )
    rows_drawn = "".join(f'<g id="r{number}">{_text(row)}</g>' for row, number in known.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(cast.title)}</title><style>{STYLE.format(seconds=seconds, keys=keys)}</style>'
        f'<defs>{rows_drawn}</defs><rect width="100%" height="100%" rx="8" fill="#16181d"/>'
        f'<svg x="{MARGIN}" y="{MARGIN}"><g id="f">{"".join(parts)}</g></svg></svg>\n'
    )


def _text(row: Row) -> str:
    """Returns the parts of a row, each of one style."""
    spans, column = [], 0
    for style, group in itertools.groupby(row, lambda cell: (cell.bold, cell.reverse)):
        cells = list(group)
        words = "".join(cell.text for cell in cells).rstrip()
        if words:
            names = "".join(name for name, on in zip("br", style, strict=True) if on)
            of_class = f' class="{" ".join(names)}"' if names else ""
            place = f'x="{column * CHARACTER:g}" y="14" textLength="{len(words) * CHARACTER:g}"'
            spans.append(f"<text {place}{of_class}>{escape(words)}</text>")
        column += len(cells)
    return "".join(spans)
