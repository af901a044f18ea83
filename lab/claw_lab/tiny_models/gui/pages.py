"""Small pages and their tasks: choose a thing in one of four ways, then press one of four buttons.

A template is a family, a wording and a theme; templates held out by their hash occur in no demonstration and in no
task of RL.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from claw_lab.tiny_models.gui.rows import Template, is_held_out, row

THEMES = {
    "Travel": ("Hotel", "Train", "Bus", "Ferry", "Flight", "Map", "Guide", "Visa"),
    "Kitchen": ("Bread", "Soup", "Salad", "Cheese", "Tea", "Juice", "Rice", "Cake"),
    "Office": ("Report", "Letter", "Meeting", "Budget", "Invoice", "Printer", "Desk", "Memo"),
    "Garden": ("Rose", "Tulip", "Fern", "Oak", "Lily", "Moss", "Ivy", "Palm"),
    "Music": ("Piano", "Violin", "Drum", "Flute", "Harp", "Guitar", "Organ", "Horn"),
    "Sport": ("Tennis", "Golf", "Rowing", "Judo", "Hockey", "Chess", "Ski", "Polo"),
}
BUTTONS = {
    "Delete": ("remove", "erase"),
    "Copy": ("duplicate", "clone"),
    "Save": ("keep", "store"),
    "Send": ("mail", "forward"),
}
"""Each button with the wordings that mean it; no task names a button."""
FAMILIES = {"tick": "checkbox", "choose": "radio", "type": "textbox", "open": "link"}
"""Ways to choose the thing, each with the role of its widget."""
VALUES = ("anna", "ben", "cleo", "dan", "emma", "finn", "gina", "hugo", "ida", "jack", "kim", "leo")
THINGS = 3  # on a page, in addition to the buttons
MEANT = {wording: button for button, wordings in BUTTONS.items() for wording in wordings}
TEMPLATES: list[Template] = [(f, w, t) for f in FAMILIES for w in MEANT for t in THEMES]
"""Family, wording, theme."""
TRAINED_TEMPLATES = [template for template in TEMPLATES if not is_held_out("gui-pages", template)]
HELD_OUT_TEMPLATES = [template for template in TEMPLATES if is_held_out("gui-pages", template)]


@dataclass(frozen=True)
class Widget:
    """A widget; `kind` is its role: button, checkbox, radio, textbox or link; a link leads to the second page."""

    kind: str
    name: str


@dataclass(frozen=True)
class Page:
    """A page; `left` and `gap` are margins in pixels, so that no two pages have their widgets in the same places."""

    title: str
    widgets: tuple[Widget, ...]
    left: int
    gap: int

    def spec(self) -> dict[str, Any]:
        widgets = [{"kind": one.kind, "name": one.name} for one in self.widgets]
        return {"title": self.title, "left": self.left, "gap": self.gap, "widgets": widgets}


@dataclass(frozen=True)
class Errand:
    """One task.

    Attributes:
        steps: actions that solve it: (kind, name) to click, ("write", text).
        expected: the state of the site afterwards.
    """

    template: Template
    instruction: str
    pages: tuple[Page, ...]
    steps: tuple[tuple[str, str], ...]
    expected: dict[str, Any]

    def row(self) -> dict[str, Any]:
        """Returns a line of a prompt file."""
        family, wording, theme = self.template
        name = "|".join([family, theme, self.instruction])
        pages = [page.spec() for page in self.pages]
        return row(name, family, f"{wording} | {theme}", self.instruction, pages, self.expected)


def errand(rng: random.Random, held_out: bool = False) -> Errand:
    """Draws a task, held out or not, of any template."""
    template = rng.choice(HELD_OUT_TEMPLATES if held_out else TRAINED_TEMPLATES)
    family, wording, theme = template
    names, value = rng.sample(THEMES[theme], THINGS), rng.choice(VALUES)
    things = [Widget(FAMILIES[family], name) for name in names]
    buttons = [Widget("button", name) for name in rng.sample(list(BUTTONS), len(BUTTONS))]
    asked, button = rng.choice(names), MEANT[wording]
    parts = [things, buttons] if family == "open" else [things + buttons]
    pages = tuple(_page(rng, theme, part) for part in parts)
    written = [("write", value)] if family == "type" else []
    kept: dict[str, Any] = {
        "tick": {"ticked": [asked]},
        "choose": {"chosen": asked},
        "type": {"written": {asked: value}},
        "open": {"opened": [asked]},
    }[family]
    return Errand(
        template,
        instruction=f'{wording} "{asked}"' + (f' as "{value}"' if written else ""),
        pages=pages,
        steps=((FAMILIES[family], asked), *written, ("button", button)),
        expected={**kept, "pressed": [button]},
    )


def _page(rng: random.Random, title: str, widgets: list[Widget]) -> Page:
    return Page(title, tuple(widgets), rng.randrange(10, 300), rng.randrange(4, 16))
