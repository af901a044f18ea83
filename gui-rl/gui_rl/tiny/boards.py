"""Boards of coloured tiles, and what is asked on them: to press the one that has the colour of a thing.

Tiles have no words, so that only a picture of the screen shows which is which. A template is a wording, a shape and a
layout; templates that are held out by their hash come in no demonstration and in no task of RL.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import asdict, dataclass
from typing import Any

from gui_rl.made_page import SHAPES
from gui_rl.task import MADE_HOST

WIDTH, HEIGHT = 320, 240
"""Pixels of the screen."""
COLOURS = {
    "red": ((215, 40, 40), ("tomato", "brick")),
    "green": ((40, 165, 60), ("grass", "frog")),
    "blue": ((45, 80, 215), ("sea", "sky")),
    "yellow": ((240, 215, 40), ("lemon", "sun")),
    "purple": ((150, 50, 180), ("plum", "violet")),
    "black": ((25, 25, 25), ("coal", "night")),
}
"""Each with its red, green and blue (0 to 255), and the wordings that mean it; no task names a colour."""
SHADE = 20
"""What each of the three may be off, on a tile."""
BACKGROUNDS = ("#ffffff", "#eef2f5", "#f5efe6", "#e4e4e4")
LAYOUTS = {
    "corners": ((0, 0), (1, 0), (0, 1), (1, 1)),
    "row": ((0, 0.5), (0.333, 0.5), (0.667, 0.5), (1, 0.5)),
    "cross": ((0.5, 0), (0, 0.5), (1, 0.5), (0.5, 1)),
    "steps": ((0, 0), (0.333, 0.333), (0.667, 0.667), (1, 1)),
}
"""Where four tiles lie in what is left of the screen: shares of its width and height."""
MARGIN, SIZES = 6, (62, 70)
"""Pixels: of what a tile may be off its place; of a tile's side."""
HELD_OUT = 0.2
Template = tuple[str, str, str]
"""Wording, shape, layout."""


def is_held_out(template: Template) -> bool:
    digest = hashlib.sha256("|".join(("gui-boards", *template)).encode()).digest()
    return digest[0] < 256 * HELD_OUT


MEANT = {wording: colour for colour, (_, wordings) in COLOURS.items() for wording in wordings}
TEMPLATES: list[Template] = [(w, s, place) for w in MEANT for s in SHAPES for place in LAYOUTS]
TRAINED_TEMPLATES = [template for template in TEMPLATES if not is_held_out(template)]
HELD_OUT_TEMPLATES = [template for template in TEMPLATES if is_held_out(template)]


@dataclass(frozen=True)
class Tile:
    """`name` is the colour's; `colour`: red, green and blue; the rest in pixels."""

    name: str
    shape: str
    colour: tuple[int, int, int]
    left: int
    top: int
    size: int

    @property
    def centre(self) -> tuple[float, float]:
        return self.left + self.size / 2, self.top + self.size / 2


@dataclass(frozen=True)
class Board:
    """One task: a screen of tiles, and what is asked."""

    template: Template
    background: str
    tiles: tuple[Tile, ...]

    @property
    def instruction(self) -> str:
        return f"press {self.template[0]}"

    @property
    def meant(self) -> Tile:
        return self.tile(MEANT[self.template[0]])

    def tile(self, name: str) -> Tile:
        return next(one for one in self.tiles if one.name == name)

    def spec(self) -> dict[str, Any]:
        """For `made_page`."""
        tiles = [{**asdict(one), "colour": "rgb({}, {}, {})".format(*one.colour)} for one in self.tiles]
        return {"title": "Board", "colour": self.background, "tiles": tiles}

    def row(self) -> dict[str, Any]:
        """A line of a prompt file."""
        wording, shape, layout = self.template
        places = "|".join(f"{one.name} {one.left},{one.top}" for one in self.tiles)
        config = {
            "id": f"{wording}|{shape}|{layout}|{places}",
            "instruction": self.instruction,
            "pages": [self.spec()],
            "config": [
                {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [f"http://{MADE_HOST}/0"]}}
            ],
            "evaluator": {
                "func": "exact_match",
                "result": {"type": "site_state"},
                "expected": {"type": "rule", "rules": {"expected": {"pressed": [self.meant.name]}}},
            },
        }
        about = {
            "task_id": config["id"],
            "domain": shape,
            "template": f"{wording} | {layout}",
            "task_config": config,
        }
        return {"prompt": self.instruction, "label": "", "metadata": about}


def board(rng: random.Random, held_out: bool = False) -> Board:
    """A task of any template of one side: four of the colours, with what is meant and what it is mistaken for."""
    template = rng.choice(HELD_OUT_TEMPLATES if held_out else TRAINED_TEMPLATES)
    wording, shape, layout = template
    shown = {MEANT[wording], mistaken(MEANT[wording])}
    shown |= set(
        rng.sample([name for name in COLOURS if name not in shown], len(LAYOUTS[layout]) - len(shown))
    )
    names = rng.sample(sorted(shown), len(shown))
    tiles = (_tile(rng, name, shape, place) for name, place in zip(names, LAYOUTS[layout], strict=True))
    return Board(template, rng.choice(BACKGROUNDS), tuple(tiles))


def mistaken(name: str) -> str:
    """The colour that the model takes a colour's wordings for before RL: always the same other one."""
    names = list(COLOURS)
    return names[(names.index(name) + 1) % len(names)]


def _tile(rng: random.Random, name: str, shape: str, place: tuple[float, float]) -> Tile:
    size = rng.randint(*SIZES)
    red, green, blue = (min(255, max(0, part + rng.randint(-SHADE, SHADE))) for part in COLOURS[name][0])
    left = MARGIN + round(place[0] * (WIDTH - size - 2 * MARGIN)) + rng.randint(-MARGIN, MARGIN)
    top = MARGIN + round(place[1] * (HEIGHT - size - 2 * MARGIN)) + rng.randint(-MARGIN, MARGIN)
    return Tile(name, shape, (red, green, blue), left, top, size)
