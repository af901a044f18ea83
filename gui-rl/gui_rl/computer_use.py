"""Calls of the function computer_use as actions."""

from __future__ import annotations

from typing import Any

from gui_rl.actions import Click, Coordinates, Drag, Finish, GuiAction, Move, Point, Press, Scroll, Type, Wait
from gui_rl.arguments import MOST_PIXELS, MOST_SECONDS, button_of, key, number, text
from slime.agents.tool_calls import CallError

ACTIONS = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click",
    "triple_click", "scroll", "hscroll", "wait", "terminate",
)  # fmt: skip


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
