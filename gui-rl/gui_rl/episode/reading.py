"""Parses a turn of the model: one call of computer_use, or lines of pyautogui, as the calls of an episode."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gui_rl.episode.arguments import MOST_PIXELS, MOST_SECONDS, button_of, key, number, text
from gui_rl.episode.pyautogui_text import actions_in
from gui_rl.screens.actions import (
    Click,
    Coordinates,
    Drag,
    Finish,
    GuiAction,
    Move,
    Point,
    Press,
    Scroll,
    Type,
    Wait,
)
from slime.agents.protocol import Message, Tool, ToolCall
from slime.agents.tool_calls import OPEN, CallError, CallFormat, calls_in

FENCE = re.compile(r"```(?:python)?\s*\n(.*?)```", re.DOTALL)
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
LINE = re.compile(r"^\s*(?:(?:pyautogui|time)\.\w+\(.*|WAIT|DONE|FAIL)\s*$")
MOST_ACTIONS = 8  # most actions in one turn
ACTIONS = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click",
    "triple_click", "scroll", "hscroll", "wait", "terminate",
)  # fmt: skip
COORDINATE: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
COMPUTER_USE = Tool(
    "computer_use",
    "Act with mouse and keyboard.",
    {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "coordinate": COORDINATE,
            "start_coordinate": COORDINATE,
            "text": {"type": "string"},
            "keys": {"type": "array", "items": {"type": "string"}},
            "pixels": {"type": "number"},
            "time": {"type": "number"},
            "status": {"type": "string", "enum": ["success", "failure"]},
        },
        "required": ["action"],
    },
)
PYAUTOGUI = "pyautogui"
"""Name of tool calls with lines of code in the argument `code`."""
NEITHER = "there is no action; write one, or DONE, or FAIL"


class GuiFormat(CallFormat):
    """Accepts both formats in any turn; other text is treated as reasoning and ignored."""

    def __init__(self, unit: Coordinates) -> None:
        self.unit = unit

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """Returns the calls of a turn. Raises CallError if one cannot be parsed."""
        spoken = THOUGHT.sub("", text)
        if OPEN in spoken:
            calls = calls_in(spoken, (COMPUTER_USE,))
        elif code := code_in(spoken):
            calls = (ToolCall(PYAUTOGUI, {"code": code}),)
        else:
            raise CallError(NEITHER)
        actions_of(calls, self.unit)
        return calls

    def complaint(self, error: CallError) -> list[Message]:
        return [{"role": "user", "content": f"Error: {error}"}]


def code_in(text: str) -> str:
    """Returns the code in a turn: of a fenced block, else lines that look like actions; "" if there is none."""
    if fenced := FENCE.findall(text):
        return "\n".join(fenced).strip()
    return "\n".join(line.strip() for line in text.splitlines() if LINE.match(line))


def actions_of(calls: Sequence[ToolCall], unit: Coordinates) -> list[GuiAction]:
    """Returns the actions of a turn, in order. Raises CallError."""
    actions: list[GuiAction] = []
    for call in calls:
        arguments: Mapping[str, Any] = call.arguments
        if call.name == PYAUTOGUI:
            actions += actions_in(str(arguments.get("code", "")), unit)
        elif call.name == COMPUTER_USE.name:
            actions.append(computer_use(dict(arguments), unit))
        else:
            raise CallError(f"there is no function {call.name!r:.40}")
    if len(actions) > MOST_ACTIONS:
        raise CallError(f"a turn has at most {MOST_ACTIONS} actions, this one has {len(actions)}")
    return actions


def computer_use(arguments: dict[str, Any], unit: Coordinates) -> GuiAction:
    """Returns the action of a call of the function computer_use. Raises CallError."""

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
