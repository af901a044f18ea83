"""Whether a first reply is as a person wants it: pure functions over text, for any model and any problem.

The same detectors as in training (`detectors.py`), without the tiny model's own problems. Content: manners, the right
result, the steps kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_test.people.gsm8k import WordProblem
from tiny_claw import detectors

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
DETAILED_SENTENCES = 3
COLLAPSED_CHARACTERS = 60
"""A visible reply shorter than this, without a step, is a bare answer."""


@dataclass(frozen=True)
class Reply:
    """What the detectors say of one first reply.

    content: the person's manners, a right result and its steps. bare: hardly more than a number.
    """

    manners: bool
    right: bool
    steps: bool
    bare: bool

    @property
    def content(self) -> bool:
        return self.manners and self.right and self.steps


def assess(person: str, problem: WordProblem, reply: str) -> Reply:
    """`person` is student, TA or teacher. Raises KeyError for another."""
    text = detectors.visible(reply)
    steps = keeps_steps(problem, text)
    return Reply(
        manners=_MANNERS[person](text),
        right=detectors.final_number(text) == problem.answer or _states(problem, text),
        steps=steps,
        bare=not steps and len(text) < COLLAPSED_CHARACTERS,
    )


def keeps_steps(problem: WordProblem, text: str) -> bool:
    """All equations are right, and there are as many operations as the solution has; at least one where the solution
    is not known."""
    equations = detectors.equations(text)
    operations = sum(equation.operations for equation in set(equations))
    return all(equation.holds for equation in equations) and operations >= max(len(set(problem.equations)), 1)


def _states(problem: WordProblem, text: str) -> bool:
    """The result stands in the last sentence, though another number may come after it."""
    last = _SENTENCE.split(text.strip())[-1] if text.strip() else ""
    numbers = [value.replace(",", "") for value in re.findall(r"\d[\d,]*(?:\.\d+)?", last)]
    return f"{problem.answer.normalize():f}" in numbers


def _student(text: str) -> bool:
    return detectors.manner(text) == "prose"


def _assistant(text: str) -> bool:
    return detectors.manner(text) == "prose" and len(_SENTENCE.split(text.strip())) >= DETAILED_SENTENCES


def _teacher(text: str) -> bool:
    return detectors.manner(text) == "prose" and detectors.tone(text) == "warm"


_MANNERS = {"student": _student, "TA": _assistant, "teacher": _teacher}


def sessions_to_three(content: list[bool]) -> int | None:
    """Sessions until three first replies in a row were content; None when that never happened."""
    return next((end for end in range(3, len(content) + 1) if all(content[end - 3 : end])), None)
