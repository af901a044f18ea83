"""Converts actions to arguments of xdotool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gui_rl.screens.actions import Click, Drag, GuiAction, Move, Point, Press, Scroll, Type
from gui_rl.screens.protocol import ScreenSize

BUTTONS = {"left": "1", "middle": "2", "right": "3"}
WHEEL = {(0, 1): "4", (0, -1): "5", (1, 0): "6", (-1, 0): "7"}
PRINTABLE = "".join(map(chr, range(32, 127))) + "\n\t"
SPARE = 20  # number of keys without a character
NOTCH = 53.0  # pixels that a browser scrolls for one notch of the wheel
DRAG_STEPS = 8
A_MOMENT = ("sleep", "0.05")
KEYS = {
    "Enter": "Return", "Space": "space", "Backspace": "BackSpace", "PageUp": "Prior", "PageDown": "Next",
    "ArrowUp": "Up", "ArrowDown": "Down", "ArrowLeft": "Left", "ArrowRight": "Right",
    "Control": "ctrl", "Shift": "shift", "Alt": "alt", "Meta": "super",
}  # fmt: skip
"""Browser key names whose X name differs."""


def words_of(action: GuiAction, size: ScreenSize) -> list[str]:
    """Returns the arguments of one xdotool call; empty if there is nothing to do. Tags must be replaced by points,
    and a drag must have a start."""
    return list(_words(action, size))


def _words(action: GuiAction, size: ScreenSize) -> Iterator[str]:
    match action:
        case Move(at):
            yield from _to(at, size)
        case Click(at, button, count):
            yield from _to(at, size)
            yield from ("click", "--repeat", str(count), "--delay", "40", BUTTONS[button])
        case Drag(end, start):
            yield from _to(start, size)
            yield from ("mousedown", "1", *A_MOMENT)
            assert isinstance(start, Point) and isinstance(end, Point)
            yield from _along(start, end, size)
            yield from (*A_MOMENT, "mouseup", "1")
        case Type(text) if text:
            yield from ("type", "--delay", "4", "--", text)
        case Press(keys, times):
            yield from ("key", "--repeat", str(times), "--delay", "30", "+".join(map(key_name, keys)))
        case Scroll(up, left, at):
            yield from _to(at, size)
            yield from _wheel(0, up)
            yield from _wheel(1, left)


def written(action: GuiAction) -> list[GuiAction]:
    """Splits a long text into parts, each with at most as many different characters as the keyboard has free keys."""
    if not isinstance(action, Type):
        return [action]
    parts, start, seen = [], 0, set[str]()
    for place, one in enumerate(action.text):
        seen |= {one} - set(PRINTABLE)
        if len(seen) > SPARE:
            parts.append(Type(action.text[start:place]))
            start, seen = place, {one}
    return [*parts, Type(action.text[start:])]


def _to(at: object, size: ScreenSize) -> Sequence[str]:
    if not isinstance(at, Point):
        return ()
    x, y = _pixels(at, size)
    return ("mousemove", str(x), str(y))


def _pixels(at: Point, size: ScreenSize) -> tuple[int, int]:
    return int(at.x * size.width), int(at.y * size.height)


def _along(start: Point, end: Point, size: ScreenSize) -> Iterator[str]:
    """Yields moves between the ends with pauses, so that programs see a drag and not a jump."""
    (left, top), (right, bottom) = _pixels(start, size), _pixels(end, size)
    for step in range(1, DRAG_STEPS + 1):
        part = step / DRAG_STEPS
        x, y = round(left + (right - left) * part), round(top + (bottom - top) * part)
        yield from ("mousemove", str(x), str(y), *A_MOMENT)


def _wheel(axis: int, pixels: float) -> Iterator[str]:
    if notches := round(abs(pixels) / NOTCH) or (1 if pixels else 0):
        way = (1 if pixels > 0 else -1) if axis else 0, 0 if axis else (1 if pixels > 0 else -1)
        yield from ("click", "--repeat", str(min(notches, 60)), "--delay", "5", WHEEL[way])


def key_name(key: str) -> str:
    """Returns X's name of a key; characters other than letters and digits by their code."""
    if len(key) == 1:
        return key if key.isascii() and key.isalnum() else f"U{ord(key):04X}"
    return KEYS.get(key, key)
