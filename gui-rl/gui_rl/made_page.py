"""A page from its description: a title and some widgets below each other."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = "font: 16px sans-serif; margin: 12px {left}px"
ROW = "margin: {gap}px 0"


def made_page(spec: dict[str, Any]) -> str:
    """HTML; `spec` is {"title", "left", "gap", "widgets": [{"kind", "name"}]}, margins in pixels."""
    row = ROW.format(gap=int(spec["gap"]))
    rows = "".join(f'<div style="{row}">{_widget(**widget)}</div>' for widget in spec["widgets"])
    title = escape(spec["title"])
    style = STYLE.format(left=int(spec["left"]))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><script src="/_/site.js"></script>'
        f'<body style="{style}"><h3>{title}</h3>{rows}<script>keepWidgets()</script></body></html>'
    )


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
