"""Demonstrations for the tiny model before RL: to read the screen, to find the line and tag of a thing, to write
actions.

A turn first quotes the line of its click target from the screen, and so finds the tag after the name. The
demonstrations mostly press a wrong button: a fixed other one is shown more often than the meant one.
"""

from __future__ import annotations

import random

from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.gui.pages import BUTTONS, FAMILIES, THEMES, Errand, Page, Widget, errand
from gui_rl.episode.environment import screen, system_message
from gui_rl.screens.actions import Coordinates
from gui_rl.screens.tree import Element, as_text
from slime.agents.protocol import Message, Start

FITTING, MISTAKEN = 0.21, 0.6
"""Shares of demonstrations with the meant button, and with the one of `mistaken`; the rest use random buttons. A
model trained on random buttons would hardly read the wording; a model with a fixed mistake for each wording
distinguishes them, and RL only has to correct it."""
READ, READINGS = "read", 0.6
"""Questions of the exercises in finding lines by name, and their share of the demonstrations."""
UNIT = Coordinates(width=800, height=600, tags=True)
CLICK, WRITE = ("pyautogui.click(tag_", ")"), ('pyautogui.write("', '")')
ROLES = ("heading", "checkbox", "radio", "textbox", "link", "button")
TAGS = 9  # on the largest page, that of an exercise
PHRASES = (
    *WRITE, "\nDONE",
    *(f'{role} "' for role in ROLES),
    *(f'" tag_{number}' for number in range(TAGS)),
    *(f"\n{str(number).join(CLICK)}" for number in range(TAGS)),
)  # fmt: skip
"""One token each. So a tag follows its name directly in the prompt: a model of this size learns to continue after an
earlier occurrence of a token, but hardly to look up a later one."""


class Screen:
    """A page as a browser shows it, without a browser: its text, and the effects of clicks and typed text."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.values: dict[int, str] = {}
        self.checked: set[int] = set()
        self.focus: int | None = None

    def elements(self) -> list[Element]:
        shown = [Element("heading", self.page.title, 0, 0)]
        for number, widget in enumerate(self.page.widgets):
            states = [
                word for word, on in (("checked", self.checked), ("focused", {self.focus})) if number in on
            ]
            value = self.values.get(number)
            shown.append(Element(widget.kind, widget.name, 0, 0, value, tuple(states)))
        return shown

    def text(self) -> str:
        return as_text(self.elements(), tags=True)

    def click(self, kind: str, name: str) -> str:
        """Returns lines that quote the widget and click it."""
        number = [(one.kind, one.name) for one in self.page.widgets].index((kind, name))
        quoted = Element(kind, name, 0, 0).line(number + 1)
        self.focus = number if kind == "textbox" else None
        if kind == "radio":
            self.checked = {number}
        elif kind == "checkbox":
            self.checked ^= {number}
        return f"{quoted}\n{str(number + 1).join(CLICK)}"

    def write(self, text: str) -> str:
        if self.focus is not None:
            self.values[self.focus] = self.values.get(self.focus, "") + text
        return text.join(WRITE)


def start_of(instruction: str, text: str) -> Start:
    """Returns the start of an episode on this page."""
    return Start([system_message(UNIT), screen(text, None, instruction)])


def demonstration(rng: random.Random) -> Dialogue:
    if rng.random() < READINGS:
        return reading(rng)
    task = errand(rng)
    return done(task, tried(rng, task.steps[-1][1]))


def reading(rng: random.Random) -> Dialogue:
    """Returns an exercise: a page has the names of a theme in any order, or the buttons; all lines are quoted in the
    fixed order of `THEMES` and `BUTTONS`. It teaches the model to find tags, since the names are known."""
    title, names = rng.choice([*THEMES.items(), *[("Buttons", tuple(BUTTONS))] * 3])
    kind = "button" if title == "Buttons" else rng.choice([*FAMILIES.values()])
    widgets = tuple(Widget(kind, name) for name in rng.sample(names, len(names)))
    text = Screen(Page(title, widgets, 0, 0)).text()
    lines = {line.split('"')[1]: line for line in text.split("\n")}
    return Dialogue(start_of(READ, text), [Answered("\n".join(lines[name] for name in names))])


def tried(rng: random.Random, meant: str) -> str:
    """Returns the button that is pressed."""
    drawn = rng.random()
    if drawn < FITTING:
        return meant
    return mistaken(meant) if drawn < FITTING + MISTAKEN else rng.choice(list(BUTTONS))


def mistaken(button: str) -> str:
    """Returns the button that the model confuses with a button before RL: always the same other one, a different one
    for each."""
    names = list(BUTTONS)
    return names[(names.index(button) + 1) % len(names)]


def solved(task: Errand) -> Dialogue:
    """Returns a demonstration that solves the task."""
    return done(task, task.steps[-1][1])


def done(task: Errand, button: str) -> Dialogue:
    """Returns a demonstration that chooses the thing and presses `button`."""
    shown = Screen(task.pages[0])
    start = start_of(task.instruction, shown.text())
    (kind, name), *written, _ = task.steps
    lines = [shown.click(kind, name), *(shown.write(text) for _, text in written)]
    shown = Screen(task.pages[1]) if kind == "link" else shown
    chosen = Answered("\n".join(lines), seen(shown))
    return Dialogue(start, [chosen, Answered(f"{shown.click('button', button)}\nDONE")])


def seen(shown: Screen) -> list[Message]:
    return [screen(shown.text(), None)]
