"""Small pages and what is asked on them. A template is a family, a wording and a theme; templates that are held out by
their hash come in no demonstration and in no task of RL."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any

from gui_rl.task import MADE_HOST

THEMES = {
    "Travel": ("Hotel", "Train", "Bus", "Ferry", "Flight", "Map", "Guide", "Visa"),
    "Kitchen": ("Bread", "Soup", "Salad", "Cheese", "Tea", "Juice", "Rice", "Cake"),
    "Office": ("Report", "Letter", "Meeting", "Budget", "Invoice", "Printer", "Desk", "Memo"),
    "Garden": ("Rose", "Tulip", "Fern", "Oak", "Lily", "Moss", "Ivy", "Palm"),
    "Music": ("Piano", "Violin", "Drum", "Flute", "Harp", "Guitar", "Organ", "Horn"),
    "Sport": ("Tennis", "Golf", "Rowing", "Judo", "Hockey", "Chess", "Ski", "Polo"),
}
FAMILIES = {
    "press": ("press {a}", "push the button {a}", "use the button {a}", "hit {a}"),
    "tick": ("tick {a} and {b}", "check {a} and {b}", "mark {a} and {b}", "turn on {a} and {b}"),
    "choose": ("choose {a}", "pick {a}", "set it to {a}", "take {a}"),
    "type": ("write {w} into {a}", "fill {a} with {w}", "put {w} in {a}", "enter {w} as {a}"),
    "open": ("open {a}, press {b}", "go to {a} and press {b}", "follow {a}, then {b}", "visit {a} and hit {b}"),
    "form": ("write {w} into {a}, press {b}", "fill {a} with {w}, then {b}", "put {w} in {a} and hit {b}",
             "enter {w} as {a}, push {b}"),
}  # fmt: skip
VALUES = ("anna", "ben", "cleo", "dan", "emma", "finn", "gina", "hugo", "ida", "jack", "kim", "leo")
HELD_OUT = 0.2
Template = tuple[str, str, str]
"""Family, wording, theme."""


def is_held_out(template: Template) -> bool:
    digest = hashlib.sha256("|".join(("gui-pages", *template)).encode()).digest()
    return digest[0] < 256 * HELD_OUT


TEMPLATES: list[Template] = [(f, w, t) for f, wordings in FAMILIES.items() for w in wordings for t in THEMES]
TRAINED_TEMPLATES = [template for template in TEMPLATES if not is_held_out(template)]
HELD_OUT_TEMPLATES = [template for template in TEMPLATES if is_held_out(template)]


@dataclass(frozen=True)
class Widget:
    """`kind` is a role: button, checkbox, radio, textbox or link; a link leads to the second page."""

    kind: str
    name: str


@dataclass(frozen=True)
class Page:
    """`left` and `gap` are margins in pixels, so that no two pages have their widgets in the same places."""

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
        steps: what solves it: (kind, name) to click, ("write", text).
        expected: the state of the site then.
    """

    template: Template
    instruction: str
    pages: tuple[Page, ...]
    steps: tuple[tuple[str, str], ...]
    expected: dict[str, Any]

    def row(self) -> dict[str, Any]:
        """A line of a prompt file."""
        family, wording, theme = self.template
        config = {
            "id": "|".join([theme, self.instruction]),
            "instruction": self.instruction,
            "pages": [page.spec() for page in self.pages],
            "config": [
                {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [f"http://{MADE_HOST}/0"]}}
            ],
            "evaluator": {
                "func": "exact_match",
                "result": {"type": "site_state"},
                "expected": {"type": "rule", "rules": {"expected": self.expected}},
            },
        }
        about = {
            "task_id": config["id"],
            "domain": family,
            "template": f"{wording} | {theme}",
            "task_config": config,
        }
        return {"prompt": self.instruction, "label": "", "metadata": about}


def errand(rng: random.Random, held_out: bool = False) -> Errand:
    """A task of any family."""
    template = rng.choice(HELD_OUT_TEMPLATES if held_out else TRAINED_TEMPLATES)
    family, wording, theme = template
    names = rng.sample(THEMES[theme], 8)
    value = rng.choice(VALUES)
    page = _Pages(rng, theme)
    match family:
        case "press" | "choose":
            kind = "button" if family == "press" else "radio"
            asked = _asked(rng, names[:4], 1)
            pages, steps = (page.of(kind, names[:4]),), [(kind, asked[0])]
            expected: dict[str, Any] = {"pressed": asked} if family == "press" else {"chosen": asked[0]}
        case "tick":
            asked = _asked(rng, names[:4], 2)
            pages, steps = (page.of("checkbox", names[:4]),), [("checkbox", name) for name in asked]
            expected = {"ticked": sorted(asked)}
        case "type":
            asked = _asked(rng, names[:4], 1)
            pages, steps = (page.of("textbox", names[:4]),), [("textbox", asked[0]), ("write", value)]
            expected = {"written": {asked[0]: value}}
        case "open":
            asked = [_asked(rng, names[:3], 1)[0], _asked(rng, names[3:6], 1)[0]]
            pages = (page.of("link", names[:3]), page.of("button", names[3:6]))
            steps, expected = (
                [("link", asked[0]), ("button", asked[1])],
                {"opened": asked[:1], "pressed": asked[1:]},
            )
        case _:
            asked = [_asked(rng, names[:3], 1)[0], _asked(rng, names[3:6], 1)[0]]
            pages = (page.of("textbox", names[:3], "button", names[3:6]),)
            steps = [("textbox", asked[0]), ("write", value), ("button", asked[1])]
            expected = {"written": {asked[0]: value}, "pressed": asked[1:]}
    instruction = wording.format(a=asked[0], b=asked[-1], w=value)
    return Errand(template, instruction, pages, tuple(steps), expected)


def _asked(rng: random.Random, names: list[str], count: int) -> list[str]:
    """Which of them; as they come on the page, since their order does not matter."""
    chosen = set(rng.sample(names, count))
    return [name for name in names if name in chosen]


@dataclass(frozen=True)
class _Pages:
    rng: random.Random
    title: str

    def of(self, *kinds_and_names: Any) -> Page:
        pairs = zip(kinds_and_names[::2], kinds_and_names[1::2], strict=True)
        widgets = tuple(Widget(kind, name) for kind, names in pairs for name in names)
        return Page(self.title, widgets, self.rng.randrange(10, 300), self.rng.randrange(4, 24))
