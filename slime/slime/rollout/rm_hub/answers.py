"""Extracts and normalizes final answers in texts, and compares them without algebra."""

from __future__ import annotations

import re
from fractions import Fraction

_SPACES = re.compile(r"\\[,;:! ]|~|\s+")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"^([+-]?)\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}$")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s*(\d)")
_THOUSANDS = re.compile(r"^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$")
_NUMBER = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?$")
_RATIO = re.compile(r"^([+-]?\d+)/(\d+)$")
_ALTERNATIVES = re.compile(
    r"\\(?:lor|vee|land|wedge|oplus|mid|parallel|implies|iff|to|neq?|[gl]eq?|sim|simeq|x?cancel|phantom)(?![A-Za-z])"
    r"|\\[A-Za-z]*arrow(?![A-Za-z])|[|&;<>]|\\text\s*\{[^{}]*[,;/|&]"
)
_EQUALS = re.compile(r"\\approx(?![A-Za-z])|=")
_LONGEST_NUMBER = 400
"""Number of characters; longer runs of digits are compared as text."""


def last_boxed(text: str) -> str | None:
    """Returns the content of the last ``\\boxed{...}`` (or ``\\fbox``) of a text, with nested braces; None
    without one."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    opening = text.find("{", start)
    if opening < 0 or text[start:opening].strip() not in ("\\boxed", "\\fbox"):
        return _unbraced(text, start)
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position].strip()
    return None


def _unbraced(text: str, start: int) -> str | None:
    """Returns the word after ``\\boxed `` without braces."""
    match = re.match(r"\\f?boxed\s+([^\s$]+)", text[start:])
    return match.group(1) if match else None


def after_thinking(text: str) -> str | None:
    """Returns the part of a response after its reasoning; None if the reasoning has no end."""
    for mark in ("</think>", "###Response"):
        if mark in text:
            return text.rsplit(mark, 1)[1]
    return None


def labels_of(label: object) -> list[str]:
    """Returns the correct answers of a sample as texts, without boxes.

    Empty ones are ignored, because they would make an empty answer correct.
    """
    several = label if isinstance(label, list | tuple) else [label]
    texts = [str(one).strip() for one in several if one is not None]
    return [last_boxed(text) or text for text in texts if text]


def normal(answer: str) -> str:
    """Returns an answer without spacing, dollar signs, text commands and a final full stop."""
    text = answer.strip().strip("$").strip()
    text = _WRAPPED.sub(r"\1", text)
    for written, meant in (("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\left", ""), ("\\right", "")):
        text = text.replace(written, meant)
    text = text.replace("^{\\circ}", "").replace("^\\circ", "").replace("\\$", "").replace("\\%", "%")
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SPACES.sub(" ", text).strip().rstrip(".").strip()
    return text.replace(",", "") if _THOUSANDS.match(text) else text


def as_number(answer: str) -> Fraction | None:
    """Returns the exact value of a decimal, a ratio or a LaTeX fraction; None for anything else."""
    text = normal(answer).replace(" ", "")
    if len(text) > _LONGEST_NUMBER:
        return None
    if _NUMBER.match(text):
        return Fraction(text)
    ratio, fraction = _RATIO.match(text), _FRACTION.match(text)
    if ratio and int(ratio[2]):
        return Fraction(int(ratio[1]), int(ratio[2]))
    if fraction and int(fraction[3]):
        value = Fraction(int(fraction[2]), int(fraction[3]))
        return -value if fraction[1] == "-" else value
    return None


def has_alternatives(answer: str) -> bool:
    """Returns whether an answer to a question for one number contains a separator of alternatives, or an inequality:
    algebra would compare only one of them."""
    return _ALTERNATIVES.search(answer) is not None


def stated_values(answer: str) -> list[str]:
    """Returns the sides of an equation that contain no letter: `7350 = 7351` states two values, `x = 7351` one."""
    sides = [side for side in _EQUALS.split(answer) if side.strip()]
    return [side for side in sides if not re.search("[A-Za-z]", side)] if len(sides) > 1 else []


def same_without_algebra(answer: str, label: str) -> bool | None:
    """Returns whether two answers are equal as numbers or text; None if this needs algebra.

    Words are compared as words: to algebra, "dog" and "god" are the same product of letters.
    """
    a, b = normal(answer), normal(label)
    if not a or not b:
        return a == b
    if a.casefold() == b.casefold():
        return True
    x, y = as_number(a), as_number(b)
    if x is not None and y is not None:
        return x == y
    words = [re.fullmatch(r"[^\W\d_]{2,}([\s-]+[^\W\d_]+)*", text) for text in (a, b)]
    return False if any(words) else None
