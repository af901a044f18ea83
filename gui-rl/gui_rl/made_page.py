"""A page from its description: a title and some widgets below each other, or tiles without words."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = "font: 16px sans-serif; margin: 12px {left}px"
ROW = "margin: {gap}px 0"
TILE = (
    "position: absolute; left: {left}px; top: {top}px; width: {size}px; height: {size}px; padding: 0; {shape}"
)
BORDER = 20
"""Pixels, of tiles that are hollow."""
SHAPES = {
    "square": "border: 0; background: {colour}",
    "disc": "border: 0; border-radius: 50%; background: {colour}",
    "frame": "box-sizing: border-box; border: {border}px solid {colour}; background: none",
    "ring": "box-sizing: border-box; border: {border}px solid {colour}; border-radius: 50%; background: none",
}
"""Of tiles."""


def made_page(spec: dict[str, Any]) -> str:
    """HTML; `spec` is {"title", "left", "gap", "widgets": [{"kind", "name"}]}, margins in pixels, or {"title",
    "colour", "tiles": [{"name", "shape", "colour", "left", "top", "size"}]}, places and sizes in pixels, colours as CSS
    has them: a tile is a button that shows no name."""
    title = escape(spec["title"])
    if "tiles" in spec:
        style = f"margin: 0; background: {escape(spec['colour'])}"
        body = "".join(_tile(**tile) for tile in spec["tiles"])
    else:
        style = STYLE.format(left=int(spec["left"]))
        row = ROW.format(gap=int(spec["gap"]))
        rows = "".join(f'<div style="{row}">{_widget(**widget)}</div>' for widget in spec["widgets"])
        body = f"<h3>{title}</h3>{rows}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><script src="/_/site.js"></script>'
        f'<body style="{style}">{body}<script>keepWidgets()</script></body></html>'
    )


def _tile(name: str, shape: str, colour: str, left: int, top: int, size: int) -> str:
    if shape not in SHAPES:
        raise ValueError(f"there is no tile {shape!r}")
    drawn = SHAPES[shape].format(colour=escape(colour), border=BORDER)
    style = TILE.format(left=int(left), top=int(top), size=int(size), shape=drawn)
    return f'<button type=button data-name="{escape(name)}" style="{style}"></button>'


def _widget(kind: str, name: str) -> str:
    name = escape(name)
    match kind:
        case "button":
            return f"<button type=button>{name}</button>"
        case "link":
            return f'<a href="/1">{name}</a>'
        case "textbox":
            return f"<label>{name} <input autocomplete=off size=12></label>"
        case "checkbox" | "radio":
            return f"<label><input type={kind} name={kind}>{name}</label>"
        case _:
            raise ValueError(f"there is no widget {kind!r}")
