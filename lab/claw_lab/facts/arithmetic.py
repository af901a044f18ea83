"""Checks the sums in a text: pure functions that never run code of the text.

A claim is `a op b [op c ...] = d`, with + - * x × · / ÷, parentheses, decimals, thousands separators, units, and
several `=` in a row. Text that only resembles a claim (a variable, a date, a range, a version, a power, another unit
on the other side, code) does not count, nor does a claim that is wrong in one reading but may be right in another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from claw_lab.facts.sums import Reader, Side, Token, tokens_of

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_MARKS = re.compile(r"\*\*|__|`|\\[()\[\],;! ]|(?:\\?[$€£¥])")
_LATEX = {r"\times": "×", r"\cdot": "·", r"\div": "÷", r"\approx": "≈", r"\%": "%"}
_BEFORE = frozenset("([{\"'“„«:=,;>|")
"""Characters that may precede a claim directly."""
_REJECTED = re.compile(
    r"\b(?:not|never|isn't|n't|wrong|incorrect|instead of|false|nicht|falsch|pas|no es|non è|不是|错)\b|不是|错"
)
_CONVERSIONS = frozenset(map(Fraction, (7, 10, 12, 24, 60, 100, 365, 1000, 3600, 10_000, 1_000_000)))
_TEXT_LENGTH = 10_000
_NEAR = Fraction(1, 20)
"""Largest relative difference between the value and a result after ≈."""


@dataclass(frozen=True)
class Claim:
    """A claim; `text` is its left side; `holds` None: undecidable."""

    text: str
    holds: bool | None


def arithmetic_holds(text: str) -> bool | None:
    """Returns True if every decidable claim of a text holds, False if one does not, None if there is none.

    Of repeated claims the last one counts.
    """
    last = {claim.text: claim.holds for claim in claims_in(text)}
    verdicts = [holds for holds in last.values() if holds is not None]
    return all(verdicts) if verdicts else None


def claims_in(text: str) -> list[Claim]:
    """Returns the claims in the visible part of an answer, in order."""
    plain = _CODE.sub("\n", _THINKING.sub("\n", text))
    for name, sign in _LATEX.items():
        plain = plain.replace(name, sign)
    lines = plain[:_TEXT_LENGTH].splitlines()
    if len(plain) > _TEXT_LENGTH:
        lines.pop()
    return [claim for line in lines for claim in _claims_of_line(_MARKS.sub("", line))]


def _claims_of_line(line: str) -> Iterator[Claim]:
    tokens = tokens_of(line)
    at = 0
    while at < len(tokens):
        reader = Reader(tokens, at)
        sides = reader.sides() if _may_begin(tokens, at) else []
        if len(sides) > 1 and any(side.operations for side in sides):
            is_claim = _stands_alone(line, tokens, at, reader.at)
            holds = _holds(sides, reader.is_about, reader.has_range) if is_claim else None
            if holds is False and _REJECTED.search(line[: tokens[at].start].lower()):
                holds = None
            yield Claim(line[tokens[at].start : reader.first_equals].replace(" ", ""), holds)
            at = reader.at
        else:
            at = max(at + 1, reader.reached if tokens[at].kind == "number" else 0)


def _may_begin(tokens: Sequence[Token], at: int) -> bool:
    token = tokens[at]
    if token.text == "-" and at + 1 < len(tokens):
        alone = at == 0 or tokens[at - 1].kind in ("equals", "else")
        return alone and tokens[at + 1].kind == "number" and tokens[at + 1].start == token.end
    return token.kind == "number" or token.text == "("


def _stands_alone(line: str, tokens: Sequence[Token], start: int, end: int) -> bool:
    """Returns whether the text around a claim is no part of its sums."""
    if start:
        before = tokens[start - 1]
        bullet = start == 1 and before.text in "-+*–" and before.end < tokens[start].start
        if before.kind in ("sign", "number") and not bullet:
            return False
        if before.text in ("^", "√", "!", "%", "≠", "<", ">", "~"):
            return False
        if before.kind == "word" and len(before.text) == 1 and start > 1 and tokens[start - 2].kind == "sign":
            return False
        touches = line[tokens[start].start - 1] if tokens[start].start else " "
        if not touches.isspace() and touches not in _BEFORE:
            return False
    if end < len(tokens):
        behind = tokens[end]
        if behind.kind in ("sign", "number") or behind.text in ("^", "("):
            return False
        if behind.kind == "else" and behind.text in "²³_" and behind.start == tokens[end - 1].end:
            return False
        if behind.text in (".", ",", ":") and end + 1 < len(tokens) and tokens[end + 1].kind == "number":
            return tokens[end + 1].start > behind.end
    return True


def _holds(sides: Sequence[Side], is_about: bool, has_range: bool) -> bool | None:
    """Returns whether each side equals the one before it; in a run-on chain ("2 + 3 = 5 + 4 = 9") its first number
    does."""
    comparisons = [_same(before, after, is_about) for before, after in pairwise(sides)]
    if False not in comparisons:
        return None if None in comparisons else True
    unsure = not all(side.is_plain for side in sides) or (
        has_range and sides[-1].value != sides[0].value and _is_range(sides)
    )
    return None if unsure else False


def _is_range(sides: Sequence[Side]) -> bool:
    """Returns whether the first side may be a range like "5-10": it is negative as a sum, and the result is not."""
    first, second = sides[0].value, sides[1].value
    return first is not None and first < 0 and second is not None and second >= 0


def _same(before: Side, after: Side, is_about: bool) -> bool | None:
    value, written = before.value, after.value
    if value is None or written is None:
        return None
    runs_on = bool(after.operations) and after.first == value
    if value == written or runs_on:
        return True
    if after.places and abs(value - written) < Fraction(1, 10**after.places):
        return True
    if before.places and before.operations == 0 and abs(value - written) < Fraction(1, 10**before.places):
        return True
    if is_about:
        return abs(value - written) <= _NEAR * abs(value)
    whole = after.places == 0 and value.denominator != 1 and abs(value - written) < 1
    if whole or _other_units(before, after, value, written):
        return None
    return False


def _other_units(before: Side, after: Side, value: Fraction, value_written: Fraction) -> bool:
    """Returns whether the two sides may be equal in other units."""
    units = {*before.units, *after.units}
    if len(set(before.units)) > 1 or (before.units and after.units and set(before.units) != set(after.units)):
        return True
    if not units or not value or not value_written:
        return False
    ratio = abs(value / value_written)
    return ratio in _CONVERSIONS or 1 / ratio in _CONVERSIONS
