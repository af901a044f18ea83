"""An agent that follows a script: it finds elements in the accessibility tree like a model, and writes turns.

A script is a list of steps:

["click", role, name]            also double_click; an optional fourth entry is which of several, from 0
["drag", role, name, role, name] from one element to another
["write", text]  ["press", key, ...]  ["scroll", pixels]  ["done"]  ["fail"]
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gui_rl.episode.reading import GuiFormat
from slime.agents.protocol import Action, Environment, Outcome, Task
from slime.errors import ClawError

LINE = re.compile(r'^(\S+) ("(?:[^"\\]|\\.)*") (\d+),(\d+)', re.MULTILINE)
CLICKS = {"click": "click", "double_click": "doubleClick", "right_click": "rightClick"}


class ScriptError(ClawError):
    """A step that is impossible on this screen."""


@dataclass(frozen=True)
class Seen:
    """The elements in a screen's text: (role, name, x, y) in order."""

    elements: list[tuple[str, str, int, int]]

    @classmethod
    def of(cls, text: str) -> Seen:
        elements = [(role, json.loads(name), int(x), int(y)) for role, name, x, y in LINE.findall(text)]
        return cls(elements)

    def place(self, role: str, name: str, which: int = 0) -> str:
        """Returns the coordinates of an element. Raises ScriptError."""
        places = [f"{x}, {y}" for its, called, x, y in self.elements if (its, called) == (role, name)]
        if which >= len(places):
            raise ScriptError(f"there is no {role} {name!r} on the screen")
        return places[which]


def turn(step: Sequence[Any], seen: Seen) -> str:
    """Returns the text that the model would write. Raises ScriptError."""
    kind, *rest = step
    if kind in CLICKS:
        return f"pyautogui.{CLICKS[kind]}({seen.place(*rest)})"
    match kind:
        case "drag":
            start, end = seen.place(*rest[:2]), seen.place(*rest[2:])
            return f"pyautogui.moveTo({start})\npyautogui.dragTo({end})"
        case "write":
            return f"pyautogui.write({json.dumps(rest[0], ensure_ascii=False)})"
        case "press":
            return f"pyautogui.hotkey({', '.join(map(json.dumps, rest))})"
        case "scroll":
            return f"pyautogui.scroll({rest[0]})"
        case "done" | "fail":
            return str(kind).upper()
        case _:
            raise ScriptError(f"there is no step {kind!r}")


async def play(
    environment: Environment, format: GuiFormat, metadata: Mapping[str, Any], script: Sequence[Sequence[Any]]
) -> Outcome:
    """Plays a whole episode in an environment that shows the tree, and closes it. Raises ScriptError,
    EnvironmentAway, TaskError."""
    try:
        start = await environment.reset(Task("", metadata=metadata))
        shown = start.messages[-1]
        for step in script:
            text = turn(step, Seen.of(_text_of(shown)))
            seen = await environment.step(Action(text, format.calls(text, ())))
            if seen.done:
                break
            shown = seen.messages[-1]
        return await environment.evaluate()
    finally:
        await environment.close()


def _text_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])
