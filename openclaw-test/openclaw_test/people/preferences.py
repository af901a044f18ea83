"""Detects whether a first reply matches a person's preference: pure functions over text, for any model and problem.

The same detectors as in training (`detectors.py`), without the tiny model's own problems. A reply is content if it
has the manners, the right result, and the steps.
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
    """The detectors' results for one first reply.

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
    """Returns whether all equations are right, with as many operations as in the solution; at least one if the
    solution is unknown."""
    equations = detectors.equations(text)
    operations = sum(equation.operations for equation in set(equations))
    return all(equation.holds for equation in equations) and operations >= max(len(set(problem.equations)), 1)


def _states(problem: WordProblem, text: str) -> bool:
    """Returns whether the result is in the last sentence, possibly followed by another number."""
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
    """Returns the number of sessions until three first replies in a row were content; None if that never happened."""
    return next((end for end in range(3, len(content) + 1) if all(content[end - 3 : end])), None)
