"""Actions of an agent on a screen, as data: text of a model is never run as code.

Points are fractions of the screen, 0 to 1, independent of the model's unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gui_rl.screens.tree import GRID
from slime.agents.tool_calls import CallError

Button = Literal["left", "middle", "right"]


@dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True)
class Tag:
    """An element of the last shown tree, by its number."""

    number: int


Place = Point | Tag


@dataclass(frozen=True)
class Move:
    at: Place


@dataclass(frozen=True)
class Click:
    """A mouse click; `at` None: at the pointer's position."""

    at: Place | None
    button: Button = "left"
    count: int = 1


@dataclass(frozen=True)
class Drag:
    """A drag from `start` (None: the pointer's position) to `end`."""

    end: Place
    start: Place | None = None


@dataclass(frozen=True)
class Type:
    text: str


@dataclass(frozen=True)
class Press:
    """Keys pressed together, `times` times, by their browser names (Control, Enter, a)."""

    keys: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True)
class Scroll:
    """Scrolling in pixels; up and left are positive, as in pyautogui."""

    up: float = 0.0
    left: float = 0.0
    at: Place | None = None


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Finish:
    """Ends the episode; `success` False: the agent considers the task impossible."""

    success: bool


GuiAction = Move | Click | Drag | Type | Press | Scroll | Wait | Finish


@dataclass(frozen=True)
class Coordinates:
    """The unit in which a model writes coordinates: 0 to 999 over the screen, or pixels.

    Attributes:
        tags: the tree numbers its elements, and these numbers replace coordinates.
    """

    relative: bool = True
    width: int = 1280
    height: int = 800
    tags: bool = False

    def point(self, x: object, y: object) -> Point:
        """Returns a point. Raises CallError if it is outside the screen."""
        sides = (GRID, GRID) if self.relative else (self.width, self.height)
        for value, side in zip((x, y), sides, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < side:
                raise CallError(f"({x}, {y}) is not a place on a screen of {sides[0]} x {sides[1]}")
        return Point((float(x) + 0.5) / sides[0], (float(y) + 0.5) / sides[1])  # type: ignore[arg-type]

    def place(self, x: object, y: object) -> Place:
        """Returns a point, or a tag if x is one. Raises CallError."""
        if isinstance(x, Tag) and y is None:
            if not self.tags:
                raise CallError("elements have no tags here; write x and y")
            return x
        return self.point(x, y)

    def written(self, x: float, y: float) -> tuple[int, int]:
        """Converts a position in screen pixels to this unit."""
        if not self.relative:
            return int(x), int(y)
        return tuple(  # type: ignore[return-value]
            max(0, min(GRID - 1, int(value / side * GRID)))
            for value, side in ((x, self.width), (y, self.height))
        )


def resolved(action: GuiAction, places: Sequence[Point]) -> GuiAction:
    """Replaces tags by points; `places`: points of the elements that were shown.

    Raises:
        CallError: there is no such element.
    """

    def point(at: Place | None) -> Point | None:
        if not isinstance(at, Tag):
            return at
        if at.number >= len(places):
            raise CallError(f"there is no tag_{at.number} on the screen")
        return places[at.number]

    changed = {name: point(getattr(action, name)) for name in ("at", "start", "end") if hasattr(action, name)}
    return replace(action, **changed) if changed else action
