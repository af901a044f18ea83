"""What the model is told: the rules at the beginning, and the screen after each turn."""

from __future__ import annotations

import base64
from typing import Any

from gui_rl.actions import Coordinates
from slime.agents.protocol import Message

SYSTEM = """You use a computer. You get a task and see the screen; each turn you act once, then you see the screen again.
Coordinates are {coordinates}. Actions are lines of Python:
pyautogui.click(x, y)            also doubleClick, tripleClick, rightClick, middleClick, moveTo
pyautogui.dragTo(x, y)           from where the pointer is
pyautogui.write("text")          into what has the focus
pyautogui.press("enter")         pyautogui.hotkey("ctrl", "a")
pyautogui.scroll(-300, x, y)     down; hscroll for sideways
WAIT                             to look again
DONE                             the task is done
FAIL                             it cannot be done
or one call of the function computer_use in <tool_call></tool_call>, as JSON with name and arguments: \
action (key, type, mouse_move,
left_click, left_click_drag, right_click, middle_click, double_click, triple_click, scroll, hscroll, wait, terminate),
coordinate, text, keys, pixels, time, status."""
RELATIVE = "0 to 999 from left to right and from top to bottom"
TAGGED = "tags, such as pyautogui.click(tag_3) for the element that the screen calls tag_3"
ABSOLUTE = "pixels of a screen that is {width} wide and {height} high"


def system_message(unit: Coordinates) -> Message:
    """The rules, with the unit of coordinates."""
    coordinates = RELATIVE if unit.relative else ABSOLUTE.format(width=unit.width, height=unit.height)
    coordinates = TAGGED if unit.tags else coordinates
    return {"role": "system", "content": SYSTEM.format(coordinates=coordinates)}


def screen(tree: str | None, png: bytes | None, before: str = "") -> Message:
    """A message that shows the screen: the tree as text, the picture as a data URL, or both.

    Args:
        before: the task, or what is wrong with the last action.
    """
    text = before if tree is None else f"{before}\n{tree}".lstrip("\n")
    if png is None:
        return {"role": "user", "content": text}
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text or "The screen now."}]}
