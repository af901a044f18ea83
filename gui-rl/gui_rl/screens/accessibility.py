"""Converts Chromium's accessibility tree and layout to screen elements.

Both come from the DevTools protocol: `Accessibility.getFullAXTree` gives roles, names, values and states,
`DOMSnapshot.captureSnapshot` gives the boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gui_rl.screens.actions import Coordinates
from gui_rl.screens.protocol import Shown
from gui_rl.screens.tree import Element

Node = Mapping[str, Any]
Box = tuple[float, float, float, float]
"""x, y, width, height in document pixels."""
USABLE = {
    "button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "option", "menuitem", "menuitemcheckbox",
    "menuitemradio", "tab", "switch", "slider", "spinbutton", "treeitem",
}  # fmt: skip
READ = {
    "heading",
    "image",
    "img",
    "cell",
    "gridcell",
    "columnheader",
    "rowheader",
    "alert",
    "status",
    "progressbar",
    "meter",
}
EDITED = {"textbox", "searchbox", "spinbutton", "combobox"}
VALUED = EDITED | {"slider", "progressbar", "meter"}
STATES = {
    "checked": "checked",
    "selected": "selected",
    "expanded": "expanded",
    "disabled": "disabled",
    "pressed": "pressed",
}
NAMES = {"img": "image", "gridcell": "cell", "StaticText": "text"}
CELLS = {"cell", "gridcell"}
UNSPOKEN = {"LabelText"}
"""Roles whose text is the name of another element; they are not listed."""


@dataclass(frozen=True)
class View:
    """The visible part of the document, in document pixels; `origin`: position of its corner on the screen."""

    left: float
    top: float
    width: float
    height: float
    origin: tuple[float, float] = (0.0, 0.0)

    def centre(self, box: Box) -> tuple[float, float] | None:
        """Returns the centre of the visible part of a box, in screen pixels; None if no part is visible."""
        left, top = max(box[0], self.left), max(box[1], self.top)
        right, bottom = (
            min(box[0] + box[2], self.left + self.width),
            min(box[1] + box[3], self.top + self.height),
        )
        if right - left < 1 or bottom - top < 1:
            return None
        x, y = self.origin
        return (left + right) / 2 - self.left + x, (top + bottom) / 2 - self.top + y


def shown_page(
    tree: Mapping[str, Any],
    snapshot: Mapping[str, Any],
    place: Sequence[float],
    unit: Coordinates,
    notes: Sequence[str],
    origin: tuple[float, float] = (0.0, 0.0),
) -> Shown:
    """Returns the visible part of a page, with a note if the page continues.

    Args:
        tree, snapshot: results of the two commands.
        place: left, top, width and height of the visible part, and the height of the whole page, in pixels.
        origin: position of the page's corner on the screen.
    """
    left, top, width, height, whole = place
    below = ["(more below)"] if top + height < whole - 1 else []
    above = ["(more above)"] if top > 0 else []
    elements = elements_of(tree["nodes"], boxes_of(snapshot), View(left, top, width, height, origin), unit)
    return Shown(elements, [*notes, *below, *above])


def boxes_of(snapshot: Mapping[str, Any]) -> dict[int, Box]:
    """Returns the boxes of the main document's nodes, by their backend node id."""
    document = snapshot["documents"][0]
    numbers, layout = document["nodes"]["backendNodeId"], document["layout"]
    return {
        numbers[node]: tuple(box) for node, box in zip(layout["nodeIndex"], layout["bounds"], strict=True)
    }


def elements_of(
    nodes: Sequence[Node], boxes: Mapping[int, Box], view: View, unit: Coordinates
) -> list[Element]:
    """Returns the visible elements in document order."""
    by_id = {node["nodeId"]: node for node in nodes}
    roots = [node for node in nodes if node.get("parentId") not in by_id]
    elements = []
    for node, inside in (pair for root in roots for pair in _walk(root, by_id, "")):
        name = _value(node, "name")
        role = str(node["role"]["value"])
        if role == "StaticText" and (not name.strip() or name.strip() in inside):
            continue
        box = boxes.get(node.get("backendDOMNodeId", -1))
        centre = None if box is None else view.centre(box)
        if centre is not None:
            elements.append(_element(node, role, " ".join(name.split()), unit.written(*centre)))
    return elements


def _walk(node: Node, by_id: Mapping[str, Node], inside: str) -> Iterator[tuple[Node, str]]:
    """Yields the nodes to show, each with the name already shown for its container."""
    role = str(node.get("role", {}).get("value", ""))
    if role in UNSPOKEN:
        inside = _all_text(node, by_id)
    elif not node.get("ignored") and (role == "StaticText" or role in USABLE or role in READ):
        name = _value(node, "name")
        if role in USABLE or (name and not (role in CELLS and _holds(node, by_id))):
            yield node, inside
            inside = inside if role == "StaticText" else name
    if role != "StaticText" and role not in EDITED - {"combobox"}:
        for child in node.get("childIds", ()):
            if child in by_id:
                yield from _walk(by_id[child], by_id, inside)


def _holds(node: Node, by_id: Mapping[str, Node]) -> bool:
    """Returns whether a node contains an interactive element; its name then only repeats that element's."""
    children = [by_id[child] for child in node.get("childIds", ()) if child in by_id]
    return any(str(one.get("role", {}).get("value")) in USABLE or _holds(one, by_id) for one in children)


def _all_text(node: Node, by_id: Mapping[str, Node]) -> str:
    own = _value(node, "name") if str(node.get("role", {}).get("value")) == "StaticText" else ""
    children = (by_id[child] for child in node.get("childIds", ()) if child in by_id)
    return " ".join([own, *(_all_text(child, by_id) for child in children)])


def _element(node: Node, role: str, name: str, place: tuple[int, int]) -> Element:
    on = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
    states = [word for key, word in STATES.items() if on.get(key) in (True, "true", "mixed")]
    states += ["focused"] if on.get("focused") is True and role in EDITED else []
    value = _value(node, "value") if role in VALUED else ""
    return Element(NAMES.get(role, role), name, *place, value or None, tuple(states))


def _value(node: Node, name: str) -> str:
    return str(node.get(name, {}).get("value", ""))
