"""What a turn of the model means: one call of computer_use, or lines of pyautogui, as the calls of an episode."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gui_rl.actions import Coordinates, GuiAction
from gui_rl.computer_use import ACTIONS, computer_use
from gui_rl.pyautogui_text import actions_in
from slime.agents.protocol import Message, Tool, ToolCall
from slime.agents.tool_calls import OPEN, CallError, CallFormat, calls_in

FENCE = re.compile(r"```(?:python)?\s*\n(.*?)```", re.DOTALL)
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
LINE = re.compile(r"^\s*(?:(?:pyautogui|time)\.\w+\(.*|WAIT|DONE|FAIL)\s*$")
MOST_ACTIONS = 8  # of one turn
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
"""Name of the calls that hold lines of code in `code`."""
NEITHER = "there is no action; write one, or DONE, or FAIL"


class GuiFormat(CallFormat):
    """Both forms in any turn; what surrounds them is thought and not read."""

    def __init__(self, unit: Coordinates) -> None:
        self.unit = unit

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """The calls of a turn, which all can be read. Raises CallError."""
        said = THOUGHT.sub("", text)
        if OPEN in said:
            found = calls_in(said, (COMPUTER_USE,))
        elif code := code_in(said):
            found = (ToolCall(PYAUTOGUI, {"code": code}),)
        else:
            raise CallError(NEITHER)
        actions_of(found, self.unit)
        return found

    def complaint(self, error: CallError) -> list[Message]:
        return [{"role": "user", "content": f"Error: {error}"}]


def code_in(text: str) -> str:
    """Lines of code in a turn: those of a fence, else those that are actions by their look; "" for none."""
    if fenced := FENCE.findall(text):
        return "\n".join(fenced).strip()
    return "\n".join(line.strip() for line in text.splitlines() if LINE.match(line))


def actions_of(calls: Sequence[ToolCall], unit: Coordinates) -> list[GuiAction]:
    """The actions of a turn, in order. Raises CallError."""
    found: list[GuiAction] = []
    for call in calls:
        arguments: Mapping[str, Any] = call.arguments
        if call.name == PYAUTOGUI:
            found += actions_in(str(arguments.get("code", "")), unit)
        elif call.name == COMPUTER_USE.name:
            found.append(computer_use(dict(arguments), unit))
        else:
            raise CallError(f"there is no function {call.name!r:.40}")
    if len(found) > MOST_ACTIONS:
        raise CallError(f"a turn has at most {MOST_ACTIONS} actions, this one has {len(found)}")
    return found
