"""Detects the look of a reply and checks its arithmetic: pure functions over text and problem.

They read any model's text, not only tiny-claw's: chained equations, decimals, signs + - x * × / ÷ or words
("5 plus 3 is 8"). The student's preference (`satisfies`) is the one of the paper's student: natural prose,
no bold, no lists, all the steps kept, and the right answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol

Manner = Literal["list", "prose", "bare", "other"]
Tone = Literal["warm", "cold"]

_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__|<b>|<strong>", re.IGNORECASE)
_LIST_LINE = re.compile(r"^\s{0,8}(?:\d{1,3}[.)]|[-*•+])\s+\S", re.MULTILINE)
_HEADING = re.compile(
    r"^\s{0,3}#{1,6}\s|^\s*(?:final answer|answer|solution)\s*:", re.IGNORECASE | re.MULTILINE
)
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\d.])\d[\d,]*(?:\.\d+)?")
_SIGNS = {
    "+": "+", "plus": "+", "-": "-", "−": "-", "–": "-", "minus": "-",
    "x": "x", "*": "x", "×": "x", "times": "x", "/": "/", "÷": "/",
}  # fmt: skip
_VALUE = r"\$?\d[\d,]*(?:\.\d+)?"
_SIGN = r"(?:plus|minus|times|[-+x*×÷/−–])"
_EQUATION = re.compile(
    rf"(?<![\d.])({_VALUE}(?:\s*{_SIGN}\s*{_VALUE})+)\s*(?:=|equals|is|makes|gives|leaves)\s*({_VALUE})(?!\d)",
    re.IGNORECASE,
)
_WARM = re.compile(
    r"\b(?:great|well done|happy to|glad|good (?:job|work|luck|question)|wonderful|lovely|nice one"
    r"|let's do this|keep it up|proud of|you can do|no worries|my pleasure|with pleasure)\b|[!😊🙂👍]",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_MIN_PROSE_WORDS = 5
_ROUNDING = Decimal("0.006")  # a result may be rounded to cents


class HasSolution(Protocol):
    """Attributes of a problem that the detectors need."""

    @property
    def answer(self) -> int: ...

    @property
    def equations(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Equation:
    """An equation in a reply: `expression` alternates numbers and signs (+ - x /); `result`: the stated result."""

    expression: tuple[Decimal | str, ...]
    result: Decimal

    @property
    def operations(self) -> int:
        return len(self.expression) // 2

    @property
    def holds(self) -> bool:
        value = _evaluate(self.expression)
        return value is not None and abs(value - self.result) < _ROUNDING


@dataclass(frozen=True)
class Verdict:
    """All detectors' results for one reply."""

    manner: Manner
    tone: Tone
    right: bool
    steps_kept: bool
    satisfies: bool


def visible(reply: str) -> str:
    """Returns the reply without its thinking block."""
    return _THINKING.sub("", reply).strip()


def has_bold(reply: str) -> bool:
    return _BOLD.search(visible(reply)) is not None


def has_list(reply: str) -> bool:
    return _LIST_LINE.search(visible(reply)) is not None


def has_ai_look(reply: str) -> bool:
    """Returns whether it has bold text, list lines, headings or an "Answer:" label."""
    return has_bold(reply) or has_list(reply) or _HEADING.search(visible(reply)) is not None


def equations(reply: str) -> list[Equation]:
    """Returns the equations in the reply, in order."""
    matches = _EQUATION.findall(visible(reply).replace("**", ""))
    return [Equation(_read_expression(left), _read_value(right)) for left, right in matches]


def keeps_steps(problem: HasSolution, reply: str) -> bool:
    """Returns whether all equations in the reply are right and do at least as many operations as the solution."""
    steps = equations(reply)
    operations = sum(equation.operations for equation in set(steps))
    return operations >= len(set(problem.equations)) and all(equation.holds for equation in steps)


def final_number(reply: str) -> Decimal | None:
    """Returns the last number in the reply, which a reader takes as its answer."""
    numbers = _NUMBER.findall(visible(reply))
    return _read_value(numbers[-1]) if numbers else None


def is_right(problem: HasSolution, reply: str) -> bool:
    return final_number(reply) == problem.answer


def manner(reply: str) -> Manner:
    """Returns list: the AI look; prose: five words or more around the numbers; bare: numbers with hardly any words;
    other: no number."""
    if has_ai_look(reply):
        return "list"
    text = visible(reply)
    if not _NUMBER.search(text):
        return "other"
    words = re.findall(r"[^\W\d_]{2,}", text)
    return "prose" if len(words) >= _MIN_PROSE_WORDS else "bare"


def tone(reply: str) -> Tone:
    return "warm" if _WARM.search(visible(reply)) else "cold"


def is_detailed(problem: HasSolution, reply: str) -> bool:
    """Returns whether every step has a sentence and the result one more; friendly sentences do not count."""
    sentences = _SENTENCE.split(visible(reply))
    return sum(tone(text) == "cold" for text in sentences) > len(set(problem.equations))


def satisfies(problem: HasSolution, reply: str) -> bool:
    """Returns whether a reply matches the student's preference: plain prose, the steps kept, the right answer."""
    return manner(reply) == "prose" and keeps_steps(problem, reply) and is_right(problem, reply)


def judge(problem: HasSolution, reply: str) -> Verdict:
    """Returns the results of all detectors."""
    return Verdict(
        manner(reply),
        tone(reply),
        is_right(problem, reply),
        keeps_steps(problem, reply),
        satisfies(problem, reply),
    )


def _read_value(text: str) -> Decimal:
    return Decimal(text.replace(",", "").replace("$", ""))


def _read_expression(text: str) -> tuple[Decimal | str, ...]:
    parts = re.findall(rf"{_VALUE}|{_SIGN}", text, re.IGNORECASE)
    return tuple(_SIGNS[part.lower()] if n % 2 else _read_value(part) for n, part in enumerate(parts))


def _evaluate(expression: tuple[Decimal | str, ...]) -> Decimal | None:
    """Returns the value, with x and / before + and -; None for a division by zero."""
    numbers = [part for part in expression if isinstance(part, Decimal)]
    signs = [part for part in expression if isinstance(part, str)]
    total, term = Decimal(0), numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        if sign == "/" and number == 0:
            return None
        if sign in "x/":
            term = term * number if sign == "x" else term / number
        else:
            total, term = total + term, number if sign == "+" else -number
    return total + term
