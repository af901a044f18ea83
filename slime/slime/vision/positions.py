"""Token positions for Qwen3-VL's rotary embedding: each has a time, a row and a column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from slime.vision.place import ImagePlace


def rope_positions(length: int, images: Sequence[ImagePlace]) -> Tensor:
    """Returns [3, length]: times, rows and columns of one sequence's tokens (Qwen2-VL, arXiv 2409.12191, section
    2.1).

    For text, all three are the same number. All tokens of an image have the time at which it starts, and their rows
    and columns count from there. The next token's position follows the largest of these.
    """
    positions = torch.empty(3, length, dtype=torch.long)
    place = following = 0
    for image in images:
        following = _text(positions, place, image.start, following)
        rows, columns = (size // image.merge for size in image.grid[1:])
        part = positions[:, image.start : image.end]
        part[0] = following
        part[1] = following + torch.arange(rows).repeat_interleave(columns)
        part[2] = following + torch.arange(columns).repeat(rows)
        place, following = image.end, following + max(rows, columns)
    _text(positions, place, length, following)
    return positions


def position_shift_after(length: int, images: Sequence[ImagePlace]) -> int:
    """Returns the difference between the position of a token after `length` others and its index; at most 0."""
    return sum(max(image.grid[1:]) // image.merge - image.length for image in images if image.end <= length)


def _text(positions: Tensor, first: int, last: int, position: int) -> int:
    """Assigns consecutive positions from `position` to tokens [first, last); returns the next position."""
    positions[:, first:last] = torch.arange(position, position + last - first)
    return position + last - first
