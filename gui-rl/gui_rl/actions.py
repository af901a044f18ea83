"""What an agent can do to a screen, as data: nothing that a model writes is ever run as code.

Points are shares of the screen, 0 to 1, whatever unit the model wrote them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gui_rl.tree import GRID
from slime.agents.tool_calls import CallError

Button = Literal["left", "middle", "right"]
MOST_TEXT = 4000  # characters of one action
MOST_SECONDS = 10.0
MOST_PIXELS = 10_000


@dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True)
class Tag:
    """An element of the tree that was shown last, by its number."""

    number: int


Place = Point | Tag


@dataclass(frozen=True)
class Move:
    at: Place


@dataclass(frozen=True)
class Click:
    """`at` None: where the pointer is."""

    at: Place | None
    button: Button = "left"
    count: int = 1


@dataclass(frozen=True)
class Drag:
    """With the button held, from `start`, or from where the pointer is, to `end`."""

    end: Place
    start: Place | None = None


@dataclass(frozen=True)
class Type:
    text: str


@dataclass(frozen=True)
class Press:
    """Keys that are pressed together, `times` times, by their names in the browser (Control, Enter, a)."""

    keys: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True)
class Scroll:
    """In pixels; up and left are positive, as in pyautogui."""

    up: float = 0.0
    left: float = 0.0
    at: Place | None = None


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Finish:
    """The agent ends the episode; `success` False: it holds the task for impossible."""

    success: bool


GuiAction = Move | Click | Drag | Type | Press | Scroll | Wait | Finish


@dataclass(frozen=True)
class Coordinates:
    """In what unit a model writes coordinates: 0 to 999 over the screen, or pixels of it.

    Attributes:
        tags: the tree names elements by number, and these stand for their places.
    """

    relative: bool = True
    width: int = 1280
    height: int = 800
    tags: bool = False

    def point(self, x: object, y: object) -> Point:
        """Raises CallError where it is no place on the screen."""
        sides = (GRID, GRID) if self.relative else (self.width, self.height)
        for value, side in zip((x, y), sides, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < side:
                raise CallError(f"({x}, {y}) is no place on a screen of {sides[0]} x {sides[1]}")
        return Point((float(x) + 0.5) / sides[0], (float(y) + 0.5) / sides[1])  # type: ignore[arg-type]

    def place(self, x: object, y: object) -> Place:
        """The same, or a tag in the place of x. Raises CallError."""
        if isinstance(x, Tag) and y is None:
            if not self.tags:
                raise CallError("elements have no tags here; write x and y")
            return x
        return self.point(x, y)

    def written(self, x: float, y: float) -> tuple[int, int]:
        """A place in pixels of the screen, in this unit."""
        if not self.relative:
            return int(x), int(y)
        return tuple(  # type: ignore[return-value]
            max(0, min(GRID - 1, int(value / side * GRID)))
            for value, side in ((x, self.width), (y, self.height))
        )


KEYS = {
    "enter": "Enter", "return": "Enter", "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "Space",
    " ": "Space",
    "backspace": "Backspace", "delete": "Delete", "del": "Delete", "insert": "Insert", "home": "Home", "end": "End",
    "pageup": "PageUp", "pgup": "PageUp", "page_up": "PageUp",
    "pagedown": "PageDown", "pgdn": "PageDown", "page_down": "PageDown",
    "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight",
    "arrowup": "ArrowUp", "arrowdown": "ArrowDown", "arrowleft": "ArrowLeft", "arrowright": "ArrowRight",
    "ctrl": "Control", "control": "Control", "ctrlleft": "Control", "ctrlright": "Control",
    "shift": "Shift", "shiftleft": "Shift", "shiftright": "Shift",
    "alt": "Alt", "altleft": "Alt", "altright": "Alt", "option": "Alt",
    "win": "Meta", "winleft": "Meta", "cmd": "Meta", "command": "Meta", "super": "Meta", "meta": "Meta",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}  # fmt: skip
"""Names that models use, and the browser's."""


def key(name: object) -> str:
    """The browser's name of a key. Raises CallError."""
    if isinstance(name, str):
        if len(name) == 1 and name.isprintable() and name != " ":
            return name
        if known := KEYS.get(name.lower()):
            return known
    raise CallError(f"there is no key {name!r:.40}")


def text(value: object) -> str:
    """Raises CallError for what is no text, or too long."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise CallError(f"what is typed must be a text of at most {MOST_TEXT} characters")
    return value


def number(value: object, name: str, most: float) -> float:
    """Raises CallError for what is no number between -most and most."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= most:
        raise CallError(f"{name} must be a number of at most {most:g}")
    return float(value)


def computer_use(arguments: dict[str, Any], unit: Coordinates) -> GuiAction:
    """The action of a call of the function computer_use. Raises CallError."""

    def place(name: str = "coordinate", required: bool = True) -> Point | None:
        value = arguments.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise CallError(f"{arguments.get('action')} needs {name}: [x, y]")
        return unit.point(value[0], value[1])

    match arguments.get("action"):
        case "left_click" | "right_click" | "middle_click" as name:
            return Click(place(required=False), button_of(name.removesuffix("_click")))
        case "double_click" | "triple_click" as name:
            return Click(place(required=False), count=2 if name == "double_click" else 3)
        case "mouse_move":
            at = place()
            assert at is not None
            return Move(at)
        case "left_click_drag":
            end = place()
            assert end is not None
            return Drag(end, place("start_coordinate", required=False))
        case "type":
            return Type(text(arguments.get("text")))
        case "key":
            keys = arguments.get("keys")
            names = [keys] if isinstance(keys, str) else keys
            if not isinstance(names, list) or not 1 <= len(names) <= 4:
                raise CallError('key needs keys: ["ctrl", "a"]')
            return Press(tuple(key(one) for one in names))
        case "scroll" | "hscroll" as name:
            pixels = number(arguments.get("pixels"), "pixels", MOST_PIXELS)
            at = place(required=False)
            return Scroll(up=pixels, at=at) if name == "scroll" else Scroll(left=-pixels, at=at)
        case "wait":
            return Wait(max(0.0, number(arguments.get("time", 1), "time", MOST_SECONDS)))
        case "terminate":
            if arguments.get("status") not in ("success", "failure"):
                raise CallError("terminate needs status: success or failure")
            return Finish(arguments["status"] == "success")
        case other:
            raise CallError(f"there is no action {other!r:.40}; actions: {', '.join(ACTIONS)}")


ACTIONS = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click",
    "triple_click", "scroll", "hscroll", "wait", "terminate",
)  # fmt: skip


def button_of(name: object) -> Button:
    """Raises CallError."""
    if name not in ("left", "middle", "right"):
        raise CallError(f"there is no mouse button {name!r:.40}")
    return name  # type: ignore[return-value]


def resolved(action: GuiAction, places: Sequence[Point]) -> GuiAction:
    """The action with points in the place of tags; `places` are those of the elements that were shown.

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
