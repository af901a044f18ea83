"""Parses lines of pyautogui into actions. The text is parsed with Python's grammar and treated as data: calls of
known functions with literal arguments; nothing is looked up, evaluated or run."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from gui_rl.episode.arguments import MOST_PIXELS, MOST_SECONDS, button_of, key, number, text
from gui_rl.screens.actions import (
    Click,
    Coordinates,
    Drag,
    Finish,
    GuiAction,
    Move,
    Place,
    Press,
    Scroll,
    Tag,
    Type,
    Wait,
)
from slime.agents.tool_calls import CallError

TAG = re.compile(r"tag_(\d{1,4})")
MOST_CODE = 6000  # most characters of code in a turn
WORDS: Mapping[str, GuiAction] = {"WAIT": Wait(1.0), "DONE": Finish(True), "FAIL": Finish(False)}
Values = dict[str, Any]

PARAMETERS = {
    "click": ("x", "y", "clicks", "interval", "button", "duration"),
    "doubleClick": ("x", "y", "interval", "button", "duration"),
    "tripleClick": ("x", "y", "interval", "button", "duration"),
    "rightClick": ("x", "y", "interval", "duration"),
    "middleClick": ("x", "y", "interval", "duration"),
    "moveTo": ("x", "y", "duration"),
    "dragTo": ("x", "y", "duration", "button"),
    "write": ("message", "interval"),
    "typewrite": ("message", "interval"),
    "press": ("keys", "presses", "interval"),
    "scroll": ("clicks", "x", "y"),
    "vscroll": ("clicks", "x", "y"),
    "hscroll": ("clicks", "x", "y"),
    "sleep": ("secs",),
}
"""Parameters of the known functions, in order; durations and intervals are accepted and ignored."""


def actions_in(code: str, unit: Coordinates) -> list[GuiAction]:
    """Returns the actions in lines of pyautogui code. Raises CallError."""
    if len(code) > MOST_CODE:
        raise CallError(f"the code is longer than {MOST_CODE} characters")
    try:
        lines = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CallError(f"the code cannot be read: {getattr(error, 'msg', error)}") from error
    actions = [_action(line, unit) for line in lines if not isinstance(line, ast.Import | ast.ImportFrom)]
    if not actions:
        raise CallError("the code does nothing")
    return actions


def _action(line: ast.stmt, unit: Coordinates) -> GuiAction:
    expression = line.value if isinstance(line, ast.Expr) else None
    if isinstance(expression, ast.Name) and expression.id in WORDS:
        return WORDS[expression.id]
    if not isinstance(expression, ast.Call):
        raise CallError("only calls of pyautogui are understood, and WAIT, DONE, FAIL")
    name = _name(expression.func)
    if name == "hotkey":
        keys = [_literal(one) for one in expression.args]
        keys = keys[0] if len(keys) == 1 and isinstance(keys[0], list) else keys
        return Press(tuple(key(one) for one in keys))
    if name not in PARAMETERS:
        raise CallError(f"there is no function {name}; functions: {', '.join([*PARAMETERS, 'hotkey'])}")
    return _ACTIONS[name](name, _arguments(name, expression), unit)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id in ("pyautogui", "time"):
            return function.attr
    elif isinstance(function, ast.Name):
        return function.id
    raise CallError("only functions of pyautogui are understood")


def _arguments(name: str, call: ast.Call) -> Values:
    parameters = PARAMETERS[name]
    if len(call.args) > len(parameters):
        raise CallError(f"{name} takes {', '.join(parameters)}")
    arguments = dict(zip(parameters, map(_literal, call.args), strict=False))
    for one in call.keywords:
        if one.arg not in parameters or one.arg in arguments:
            raise CallError(f"{name} takes {', '.join(parameters)}")
        arguments[one.arg] = _literal(one.value)
    return arguments


def _literal(value: ast.expr) -> Any:
    if isinstance(value, ast.Name) and (tag := TAG.fullmatch(value.id)):
        return Tag(int(tag[1]))
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise CallError("arguments must be plain numbers and texts") from error


def _place(arguments: Values, unit: Coordinates) -> Place | None:
    if arguments.get("x") is None and arguments.get("y") is None:
        return None
    return unit.place(arguments.get("x"), arguments.get("y"))


def _needed(name: str, arguments: Values, unit: Coordinates) -> Place:
    if (at := _place(arguments, unit)) is None:
        raise CallError(f"{name} needs x and y")
    return at


def _click(name: str, arguments: Values, unit: Coordinates) -> GuiAction:
    buttons = {"rightClick": "right", "middleClick": "middle"}
    counts = {"doubleClick": 2, "tripleClick": 3}
    count = arguments.get("clicks", counts.get(name, 1))
    if isinstance(count, bool) or count not in (1, 2, 3):
        raise CallError("clicks must be 1, 2 or 3")
    return Click(
        _place(arguments, unit), button_of(arguments.get("button", buttons.get(name, "left"))), count
    )


def _press(name: str, arguments: Values, unit: Coordinates) -> GuiAction:
    times = arguments.get("presses", 1)
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= 50:
        raise CallError("presses must be a number from 1 to 50")
    if isinstance(arguments.get("keys"), list):
        raise CallError("press takes one key; hotkey presses several together")
    return Press((key(arguments.get("keys")),), times)


def _scroll(name: str, arguments: Values, unit: Coordinates) -> GuiAction:
    pixels, at = number(arguments.get("clicks"), "scroll", MOST_PIXELS), _place(arguments, unit)
    return Scroll(left=-pixels, at=at) if name == "hscroll" else Scroll(up=pixels, at=at)


def _drag(name: str, arguments: Values, unit: Coordinates) -> GuiAction:
    if arguments.get("button", "left") != "left":
        raise CallError("dragTo works with the left button")
    return Drag(_needed(name, arguments, unit))


_ACTIONS: Mapping[str, Callable[[str, Values, Coordinates], GuiAction]] = {
    **dict.fromkeys(("click", "doubleClick", "tripleClick", "rightClick", "middleClick"), _click),
    "moveTo": lambda name, arguments, unit: Move(_needed(name, arguments, unit)),
    "dragTo": _drag,
    **dict.fromkeys(
        ("write", "typewrite"), lambda name, arguments, unit: Type(text(arguments.get("message")))
    ),
    "press": _press,
    **dict.fromkeys(("scroll", "vscroll", "hscroll"), _scroll),
    "sleep": lambda name, arguments, unit: Wait(
        max(0.0, number(arguments.get("secs"), "seconds", MOST_SECONDS))
    ),
}
