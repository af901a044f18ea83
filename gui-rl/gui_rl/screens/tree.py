"""The accessibility tree as text: a line for what can be read or used, with the place where it is clicked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

GRID = 1000
"""Relative coordinates are 0..999 in both directions, as computer-use models write them."""


@dataclass(frozen=True)
class Element:
    """One node of the tree that is on the screen.

    Attributes:
        role: as in ARIA. name: what a screen reader reads.
        x, y: its centre, in the unit in which the model writes coordinates.
        value: typed or set; None if it has none.
        states: such as checked, disabled, focused.
    """

    role: str
    name: str
    x: int
    y: int
    value: str | None = None
    states: tuple[str, ...] = ()

    def line(self, tag: int | None = None) -> str:
        """`role "name" x,y = "value" states`, with `tag_N` for x,y if there is one."""
        place = f"{self.x},{self.y}" if tag is None else f"tag_{tag}"
        words = [self.role, json.dumps(self.name, ensure_ascii=False), place]
        if self.value:
            words += ["=", json.dumps(self.value, ensure_ascii=False)]
        return " ".join([*words, *self.states])


def as_text(
    elements: Sequence[Element], notes: Sequence[str] = (), most: int = 4000, tags: bool = False
) -> str:
    """Lines of `elements`, then `notes`; lines that do not fit into `most` characters are left out and counted.

    Args:
        tags: elements are named by their number instead of their place.
    """
    lines, room = [], most
    for number, element in enumerate(elements):
        line = element.line(number if tags else None)
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    left_out = len(elements) - len(lines)
    return "\n".join([*lines, *notes, *([f"({left_out} more elements are not shown)"] if left_out else [])])
