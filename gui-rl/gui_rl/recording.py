"""Recordings of episodes as HTML pages: a screenshot before each turn, with its actions drawn in.

python -m gui_rl.recording RESULT_DIR   writes RESULT_DIR/index.html over all episodes in it
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from gui_rl.screens.actions import Click, Drag, Finish, GuiAction, Move, Point, Press, Scroll, Type
from slime.agents.protocol import Outcome

logger = logging.getLogger(__name__)
TURNS, RESULT = "traj.jsonl", "result.json"
STYLE = """<style>
  body { font: 15px sans-serif; margin: 24px; } figure { margin: 0 0 28px; max-width: 900px; }
  .screen { position: relative; border: 1px solid #999; } .screen img { width: 100%; display: block; }
  svg { position: absolute; inset: 0; width: 100%; height: 100%; }
  pre { white-space: pre-wrap; background: #f2f2f2; padding: 8px; }
  td, th { text-align: left; padding: 3px 14px 3px 0; } .yes { color: #060; } .no { color: #a00; }
</style>"""


class Recording:
    """Records one episode in its own folder. A full disk ends the recording, not the episode."""

    def __init__(self, results: Path, domain: str, task: str, instruction: str) -> None:
        self.folder: Path | None = results / _safe(domain) / _safe(task) / secrets.token_hex(4)
        self.instruction, self.turns = instruction, 0

    def turn(self, png: bytes, text: str, actions: Sequence[GuiAction]) -> None:
        """Records the screen and then the actions; `text`: the model's output."""
        row = {"step": self.turns, "text": text, "actions": [repr(one) for one in actions]}
        marks = "".join(_marks(actions))
        self._write({f"step_{self.turns}.png": png}, {**row, "marks": marks})
        self.turns += 1

    def end(self, png: bytes, outcome: Outcome) -> None:
        """Records the last screenshot and the outcome; writes the page."""
        about = {"instruction": self.instruction, "score": outcome.details["gui_score"], "turns": self.turns}
        self._write({f"step_{self.turns}.png": png, RESULT: json.dumps(about).encode()}, None)
        if self.folder is not None:
            self._write({"index.html": episode_page(self.folder).encode()}, None)

    def _write(self, files: dict[str, bytes], row: dict[str, Any] | None) -> None:
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (self.folder / name).write_bytes(content)
            if row is not None:
                with (self.folder / TURNS).open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(row, ensure_ascii=False) + "\n")
        except OSError as error:
            logger.warning("the recording in %s ends here: %s", self.folder, error)
            self.folder = None


def _safe(name: str) -> str:
    """Returns a name that is safe as a folder name."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._")[:80] or "task"


def _marks(actions: Sequence[GuiAction]) -> Iterator[str]:
    """Yields the marks over the screenshot, as SVG with coordinates in percent."""
    pointer: Point | None = None
    for action in actions:
        match action:
            case Click(at) | Scroll(at=at):
                pointer = at or pointer
                yield _circle(pointer, "#e00")
            case Move(at):
                pointer = at
                yield _circle(at, "#06c")
            case Drag(end, start):
                begin, pointer = start or pointer or end, end
                ends = f'x1="{begin.x:.2%}" y1="{begin.y:.2%}" x2="{end.x:.2%}" y2="{end.y:.2%}"'
                yield f'<line {ends} stroke="#e00" stroke-width="3"/>{_circle(end, "#e00")}'
            case Type(text):
                yield _words(text, pointer)
            case Press(keys):
                yield _words("+".join(keys), pointer)
            case Finish(success):
                yield _words("DONE" if success else "FAIL", None)


def _circle(at: Point | None, colour: str) -> str:
    place = at or Point(0.5, 0.5)
    return f'<circle cx="{place.x:.2%}" cy="{place.y:.2%}" r="11" fill="none" stroke="{colour}" stroke-width="3"/>'


def _words(text: str, at: Point | None) -> str:
    place = at or Point(0.02, 0.94)
    return f'<text x="{place.x:.2%}" y="{place.y:.2%}" dx="14" dy="-8" fill="#e00">{escape(text)}</text>'


def episode_page(folder: Path) -> str:
    """Returns the HTML page of one episode. Raises OSError, ValueError if its files are not as `Recording` writes
    them."""
    about = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    file = folder / TURNS
    rows = (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )
    figures = [_figure(row["step"], row["marks"], row["text"]) for row in rows]
    figures.append(_figure(about["turns"], "", f"The end, worth {about['score']:g}."))
    title = escape(about["instruction"])
    return f'<!doctype html><meta charset="utf-8"><title>{title}</title>{STYLE}<h1>{title}</h1>{"".join(figures)}'


def _figure(step: int, marks: str, text: str) -> str:
    image = f'<img src="step_{step}.png" alt="screen {step}">'
    return f'<figure><div class="screen">{image}<svg>{marks}</svg></div><pre>{escape(text)}</pre></figure>'


def all_page(results: Path) -> str:
    """Returns an HTML page with links to all episodes in a folder."""
    rows = []
    for file in sorted(results.glob(f"*/*/*/{RESULT}")):
        about = json.loads(file.read_text(encoding="utf-8"))
        link = (file.parent.relative_to(results) / "index.html").as_posix()
        solved = "yes" if about["score"] == 1 else "no"
        cells = [
            f'<a href="{escape(link)}">{escape(about["instruction"])}</a>',
            file.parts[-4],
            str(about["turns"]),
        ]
        rows.append(
            f'<tr><td class="{solved}">{solved}</td>'
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    head = "<tr><th>solved<th>task<th>family<th>turns</tr>"
    return f'<!doctype html><meta charset="utf-8"><title>Episodes</title>{STYLE}<table>{head}{"".join(rows)}</table>'


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The episodes to show on a page."""

    results: Path = flag(REQUIRED, "GUI_RESULT_DIR of a run", positional=True)


def main(words: Sequence[str] | None = None) -> int:
    results = parse(Recorded, words, "python -m gui_rl.recording", __doc__).results
    try:
        (results / "index.html").write_text(all_page(results), encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(results / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
