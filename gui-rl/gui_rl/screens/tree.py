"""The accessibility tree as text: one line for each readable or interactive element, with the position to click."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

GRID = 1000
"""Relative coordinates are 0..999 in both directions, as computer-use models write them."""


@dataclass(frozen=True)
class Element:
    """One element of the tree that is visible on the screen.

    Attributes:
        role: its ARIA role.
        name: its accessible name.
        x, y: its centre, in the unit in which the model writes coordinates.
        value: typed or set value; None if it has none.
        states: such as checked, disabled, focused.
    """

    role: str
    name: str
    x: int
    y: int
    value: str | None = None
    states: tuple[str, ...] = ()

    def line(self, tag: int | None = None) -> str:
        """Returns `role "name" x,y = "value" states`, with `tag_N` instead of x,y if `tag` is set."""
        place = f"{self.x},{self.y}" if tag is None else f"tag_{tag}"
        words = [self.role, json.dumps(self.name, ensure_ascii=False), place]
        if self.value:
            words += ["=", json.dumps(self.value, ensure_ascii=False)]
        return " ".join([*words, *self.states])


def as_text(
    elements: Sequence[Element], notes: Sequence[str] = (), most: int = 4000, tags: bool = False
) -> str:
    """Returns lines of `elements`, then `notes`; lines beyond `most` characters are omitted and counted.

    Args:
        tags: show the elements' numbers instead of positions.
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
