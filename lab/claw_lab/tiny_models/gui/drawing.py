"""Draws the picture of a board as a browser shows it, without a browser."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache

from PIL import Image, ImageDraw

from claw_lab.tiny_models.gui.boards import HEIGHT, WIDTH, Board
from gui_rl.screens.sites import BORDER

FINE = 8
"""Subdivisions of a pixel's side; the covered share of them is the opacity of a pixel on the edge of a shape."""


def drawn(board: Board) -> bytes:
    """Returns a PNG of the whole screen."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), board.background)
    for tile in board.tiles:
        picture.paste(tile.colour, (tile.left, tile.top), _cover(tile.shape, tile.size))
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return out.getvalue()


@lru_cache
def _cover(shape: str, size: int) -> Image.Image:
    """Returns the coverage of each pixel of a tile (0 to 255)."""
    cover = Image.new("L", (size * FINE, size * FINE), 0)
    pen = ImageDraw.Draw(cover)
    fill: Callable[..., None] = pen.ellipse if shape in ("disc", "ring") else pen.rectangle
    fill((0, 0, size * FINE - 1, size * FINE - 1), fill=255)
    if shape in ("frame", "ring"):
        fill((BORDER * FINE, BORDER * FINE, (size - BORDER) * FINE - 1, (size - BORDER) * FINE - 1), fill=0)
    return cover.resize((size, size), Image.Resampling.BOX)
