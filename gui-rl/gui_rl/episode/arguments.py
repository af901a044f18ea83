"""Checked arguments of actions: keys, texts, numbers and mouse buttons."""

from __future__ import annotations

from gui_rl.screens.actions import Button
from slime.agents.tool_calls import CallError

MOST_TEXT = 4000  # most characters of one action
MOST_SECONDS = 10.0
MOST_PIXELS = 10_000

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
"""Names that models use for keys, mapped to the browser's names."""


def key(name: object) -> str:
    """Returns the browser's name of a key. Raises CallError."""
    if isinstance(name, str):
        if len(name) == 1 and name.isprintable() and name != " ":
            return name
        if known := KEYS.get(name.lower()):
            return known
    raise CallError(f"there is no key {name!r:.40}")


def text(value: object) -> str:
    """Returns the text. Raises CallError for another type or a text that is too long."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise CallError(f"what is typed must be a text of at most {MOST_TEXT} characters")
    return value


def number(value: object, name: str, most: float) -> float:
    """Returns the number. Raises CallError unless it is one between -most and most."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= most:
        raise CallError(f"{name} must be a number of at most {most:g}")
    return float(value)


def button_of(name: object) -> Button:
    """Returns the mouse button. Raises CallError."""
    if name not in ("left", "middle", "right"):
        raise CallError(f"there is no mouse button {name!r:.40}")
    return name  # type: ignore[return-value]
