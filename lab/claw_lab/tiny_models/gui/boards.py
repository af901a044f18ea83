"""Boards of coloured tiles, with the task to press the tile in the colour of a thing.

Tiles have no text, so that only a picture of the screen shows which is which. A template is a wording, a shape and a
layout; templates held out by their hash occur in no demonstration and in no task of RL.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from claw_lab.tiny_models.gui.rows import Template, is_held_out, row
from gui_rl.screens.sites import SHAPES

WIDTH, HEIGHT = 320, 240
"""Size of the screen in pixels."""
COLOURS = {
    "red": ((215, 40, 40), ("tomato", "brick")),
    "green": ((40, 165, 60), ("grass", "frog")),
    "blue": ((45, 80, 215), ("sea", "sky")),
    "yellow": ((240, 215, 40), ("lemon", "sun")),
    "purple": ((150, 50, 180), ("plum", "violet")),
    "black": ((25, 25, 25), ("coal", "night")),
}
"""Each colour with its red, green and blue (0 to 255), and the wordings that mean it; no task names a colour."""
SHADE = 20
"""Maximum deviation of each component on a tile."""
BACKGROUNDS = ("#ffffff", "#eef2f5", "#f5efe6", "#e4e4e4")
SIZES = (60, 70)
"""Range of a tile's side, in pixels."""
LAYOUTS = {
    "quarters": ((0, 0, 160, 120), (160, 0, 160, 120), (0, 120, 160, 120), (160, 120, 160, 120)),
    "columns": ((0, 0, 80, 240), (80, 0, 80, 240), (160, 0, 80, 240), (240, 0, 80, 240)),
    "one below": ((0, 0, 106, 120), (106, 0, 106, 120), (212, 0, 106, 120), (0, 120, 320, 120)),
    "one above": ((0, 0, 320, 120), (0, 120, 106, 120), (106, 120, 106, 120), (212, 120, 106, 120)),
}
"""Left, top, width and height of four parts of the screen, in pixels; a tile is anywhere in its part."""
MEANT = {wording: colour for colour, (_, wordings) in COLOURS.items() for wording in wordings}
TEMPLATES: list[Template] = [(w, s, place) for w in MEANT for s in SHAPES for place in LAYOUTS]
"""Wording, shape, layout."""
TRAINED_TEMPLATES = [template for template in TEMPLATES if not is_held_out("gui-boards", template)]
HELD_OUT_TEMPLATES = [template for template in TEMPLATES if is_held_out("gui-boards", template)]


@dataclass(frozen=True)
class Tile:
    """A tile; `name` is that of its colour; `colour`: red, green and blue; the rest in pixels."""

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
    """One task: a screen of tiles, and the request."""

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

    @property
    def name(self) -> str:
        places = "|".join(f"{one.name} {one.left},{one.top}" for one in self.tiles)
        return "|".join((*self.template, places))

    def spec(self) -> dict[str, Any]:
        """Returns the arguments of `made_page`."""
        tiles = [{**asdict(one), "colour": "rgb({}, {}, {})".format(*one.colour)} for one in self.tiles]
        return {"title": "Board", "colour": self.background, "tiles": tiles}

    def row(self) -> dict[str, Any]:
        """Returns a line of a prompt file."""
        wording, shape, layout = self.template
        kept = {"pressed": [self.meant.name]}
        return row(self.name, shape, f"{wording} | {layout}", self.instruction, [self.spec()], kept)


def board(rng: random.Random, held_out: bool = False) -> Board:
    """Draws a task, held out or not, with any wording: four of the colours, including the meant one and the one that
    it is mistaken for. Wordings are drawn first; otherwise a wording with many held-out templates would be rare in
    training."""
    asked = rng.choice(list(MEANT))
    side = HELD_OUT_TEMPLATES if held_out else TRAINED_TEMPLATES
    template = rng.choice([one for one in side if one[0] == asked])
    wording, shape, layout = template
    shown = [MEANT[wording], mistaken(MEANT[wording])]
    others = [name for name in COLOURS if name not in shown]
    shown += rng.sample(others, len(LAYOUTS[layout]) - len(shown))
    rng.shuffle(shown)
    tiles = (_tile(rng, name, shape, part) for name, part in zip(shown, LAYOUTS[layout], strict=True))
    return Board(template, rng.choice(BACKGROUNDS), tuple(tiles))


def mistaken(name: str) -> str:
    """Returns the colour that the model confuses with a colour before RL: always the same other one."""
    names = list(COLOURS)
    return names[(names.index(name) + 1) % len(names)]


def _tile(rng: random.Random, name: str, shape: str, part: tuple[int, int, int, int]) -> Tile:
    left, top, width, height = part
    size = rng.randint(*SIZES)
    red, green, blue = (min(255, max(0, level + rng.randint(-SHADE, SHADE))) for level in COLOURS[name][0])
    place = left + rng.randint(0, width - size), top + rng.randint(0, height - size)
    return Tile(name, shape, (red, green, blue), *place, size)
