"""What the tiny model is taught before RL: to read the screen, to copy tags and words, how actions are written.

Which widget a task means it has a faint idea of: most often a demonstration takes the first one of the right kind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from gui_rl.actions import Coordinates
from gui_rl.prompt import screen, system_message
from gui_rl.tiny.pages import Errand, Page, Widget, errand
from gui_rl.tree import Element, as_text
from slime.agents.protocol import Message, Start
from slime.agents.tiny import Answered, Dialogue

FITTING, FIRST = 0.3, 0.45
UNIT = Coordinates(width=640, height=400, tags=True)
ALL_STEPS = 0.9  # of the demonstrations; the others stop before the last step
RIGHT_WORD = 0.97


class Screen:
    """A page as a browser would show it, without one: its text, and what clicks and words change in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.values: dict[int, str] = {}
        self.checked: set[int] = set()
        self.focus: int | None = None

    def text(self) -> str:
        shown = [Element("heading", self.page.title, 0, 0)]
        for number, widget in enumerate(self.page.widgets):
            states = [
                word for word, on in (("checked", self.checked), ("focused", {self.focus})) if number in on
            ]
            value = self.values.get(number)
            shown.append(Element(widget.kind, widget.name, 0, 0, value, tuple(states)))
        return as_text(shown, tags=True)

    def click(self, number: int) -> str:
        widget = self.page.widgets[number]
        self.focus = number if widget.kind == "textbox" else None
        if widget.kind == "radio":
            self.checked = {number}
        elif widget.kind == "checkbox":
            self.checked ^= {number}
        return f"pyautogui.click(tag_{number + 1})"

    def write(self, text: str) -> str:
        if self.focus is not None:
            self.values[self.focus] = self.values.get(self.focus, "") + text
        return f'pyautogui.write("{text}")'


def start_of(instruction: str, text: str) -> Start:
    """As an episode on this page begins."""
    return Start([system_message(UNIT), screen(text, None, instruction)])


def demonstration(rng: random.Random) -> Dialogue:
    task = errand(rng)
    shown = Screen(task.pages[0])
    start = start_of(task.instruction, shown.text())
    turns: list[Answered] = []
    steps = task.steps if rng.random() < ALL_STEPS else task.steps[:-1]
    for kind, name in steps:
        if kind == "write":
            word = name if rng.random() < RIGHT_WORD else errand(rng).instruction.split()[1]
            written = shown.write(word)
        else:
            number = picked(rng, shown.page.widgets, kind, name, shown.checked)
            written = shown.click(number)
            if kind == "link":
                shown = Screen(task.pages[1])
        turns.append(Answered(written, seen(shown)))
    return Dialogue(start, [*turns, Answered("DONE")])


def picked(rng: random.Random, widgets: Sequence[Widget], kind: str, name: str, used: set[int]) -> int:
    """The widget that is meant, the first of its kind that is left, or any of its kind."""
    left = [number for number, one in enumerate(widgets) if one.kind == kind and number not in used]
    drawn = rng.random()
    meant = [number for number in left if widgets[number].name == name]
    if drawn < FITTING and meant:
        return meant[0]
    return left[0] if drawn < FITTING + FIRST else rng.choice(left)


def seen(shown: Screen) -> list[Message]:
    return [screen(shown.text(), None)]


def solved(task: Errand) -> Dialogue:
    """A demonstration that does what is asked."""
    shown = Screen(task.pages[0])
    start, turns = start_of(task.instruction, shown.text()), []
    for kind, name in task.steps:
        names = [(one.kind, one.name) for one in shown.page.widgets]
        written = shown.write(name) if kind == "write" else shown.click(names.index((kind, name)))
        if kind == "link":
            shown = Screen(task.pages[1])
        turns.append(Answered(written, seen(shown)))
    return Dialogue(start, [*turns, Answered("DONE")])
