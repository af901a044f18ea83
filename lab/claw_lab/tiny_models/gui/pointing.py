"""Demonstrations for the tiny vision model before RL: to see colours, to point at tiles, and to write both.

A turn first names the colour that it looks for, then clicks its tile. The demonstrations mostly choose a wrong
colour: a fixed other one is shown more often than the meant one.
"""

from __future__ import annotations

import random

from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.gui.boards import HEIGHT, MEANT, WIDTH, Board, Tile, board, mistaken
from claw_lab.tiny_models.gui.drawing import drawn
from gui_rl.episode.environment import screen, system_message
from gui_rl.screens.actions import Coordinates
from gui_rl.screens.tree import GRID
from slime.agents.protocol import Start

FITTING, MISTAKEN = 0.19, 0.62
"""Shares of demonstrations with the meant colour, and with the one of `mistaken`; the rest use random colours of the
board. With these shares the shipped model names the meant colour in 0.22 of cases and solves 0.21 of 640 held-out
boards."""
READ, READINGS = "read", 0.65
"""Questions of the exercises in pointing, and their share of the demonstrations."""
UNIT = Coordinates(width=WIDTH, height=HEIGHT)
STEP = 40
"""Step of written coordinates: 20, 60 and so on; the smallest tile is five steps wide."""
PLACES = range(STEP // 2, GRID, STEP)
DONE = "\nDONE"
PHRASES = (
    DONE,
    *(f"\npyautogui.click({x}" for x in PLACES),
    *(f", {y})" for y in PLACES),
)
"""Texts of one token each, so that each coordinate is one choice."""


def start_of(task: Board, asked: str) -> Start:
    """Returns the start of an episode on this board."""
    return Start([system_message(UNIT), screen(None, drawn(task), asked)])


def demonstration(rng: random.Random) -> Dialogue:
    task = board(rng)
    if rng.random() < READINGS:
        return reading(rng, task)
    return done(task, tried(rng, task))


def reading(rng: random.Random, task: Board) -> Dialogue:
    """Returns an exercise: all tiles are named and clicked in any order."""
    lines = "\n".join(click(one) for one in rng.sample(task.tiles, len(task.tiles)))
    return Dialogue(start_of(task, READ), [Answered(lines)])


def tried(rng: random.Random, task: Board) -> Tile:
    """Returns the tile that is clicked."""
    share, meant = rng.random(), MEANT[task.template[0]]
    if share < FITTING:
        return task.tile(meant)
    return task.tile(mistaken(meant)) if share < FITTING + MISTAKEN else rng.choice(task.tiles)


def solved(task: Board) -> Dialogue:
    """Returns a demonstration that solves the task."""
    return done(task, task.meant)


def done(task: Board, tile: Tile) -> Dialogue:
    return Dialogue(start_of(task, task.instruction), [Answered(f"{click(tile)}{DONE}")])


def click(tile: Tile) -> str:
    """Returns lines that name the colour of a tile and click its centre, rounded to written coordinates."""
    x, y = (value // STEP * STEP + STEP // 2 for value in UNIT.written(*tile.centre))
    return f"{tile.name}\npyautogui.click({x}, {y})"
