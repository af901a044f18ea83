"""Whether the sums that a text writes out are right: pure functions, and no code of the text is ever run.

A claim is `a op b [op c ...] = d`, with + - * x × · / ÷, parentheses, decimals, commas of thousands, units, and several
`=` in turn. What only resembles one (a variable, a date, a range, a version, a
power, another unit on the other side, code) says nothing, and neither does a claim that holds in no reading but may in
another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_MARKS = re.compile(r"\*\*|__|`|\\[()\[\],;! ]|(?:\\?[$€£¥])")
_LATEX = {r"\times": "×", r"\cdot": "·", r"\div": "÷", r"\approx": "≈", r"\%": "%"}
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])|\d+,\d{1,2}(?![\d,])|\d+(?:\.\d+)?|(?<![\w.])\.\d+"
_TOKEN = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<word>[^\W\d_]+(?:/[^\W\d_]+)?[²³]?|%|°)|(?P<other>[!<>:=]=+|=>|->|\.\.+|--+)"
    r"|(?P<equals>[=≈])|(?P<sign>[-+−–*×·/÷])|(?P<paren>[()])|(?P<else>\S)"
)
_SIGNS = {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "x": "*", "X": "*"}
_SHORT_UNIT = re.compile(r"[mgshlLtWVANJKCFk]|[cmdk]m|[km]g|ml|kW|ft|lb|oz|min|hrs?")
_BEFORE = frozenset("([{\"'“„«:=,;>|")
"""Signs that may stand right before a claim."""
_REJECTED = re.compile(
    r"\b(?:not|never|isn't|n't|wrong|incorrect|instead of|false|nicht|falsch|pas|no es|non è|不是|错)\b|不是|错"
)
_CONVERSIONS = frozenset(map(Fraction, (7, 10, 12, 24, 60, 100, 365, 1000, 3600, 10_000, 1_000_000)))
_LONGEST_NUMBER = 18
_DEEPEST, _MOST_NUMBERS = 16, 32
"""Parentheses within each other, and numbers of one side: hostile texts must not cost time."""
_TEXT_LENGTH = 10_000
_NEAR = Fraction(1, 20)
"""Of a result behind ≈, how far it may be from the value."""


@dataclass(frozen=True)
class Claim:
    """`text` is its left side; `holds` None: it cannot be told."""

    text: str
    holds: bool | None


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class _Side:
    """What is between two `=`. `first`: its first number; `places`: decimals, where it is one number."""

    value: Fraction | None
    first: Fraction
    operations: int
    places: int | None
    units: tuple[str, ...]
    is_plain: bool


def arithmetic_holds(text: str) -> bool | None:
    """True: every claim of a text that can be told holds. False: one does not. None: there is none.

    A claim that is made again is taken as it is made last.
    """
    last = {claim.text: claim.holds for claim in claims_in(text)}
    told = [holds for holds in last.values() if holds is not None]
    return all(told) if told else None


def claims_in(text: str) -> list[Claim]:
    """The claims of what is visible of an answer, in order."""
    plain = _CODE.sub("\n", _THINKING.sub("\n", text))
    for name, sign in _LATEX.items():
        plain = plain.replace(name, sign)
    lines = plain[:_TEXT_LENGTH].splitlines()
    if len(plain) > _TEXT_LENGTH:
        lines.pop()
    return [claim for line in lines for claim in _claims_of_line(_MARKS.sub("", line))]


def _claims_of_line(line: str) -> Iterator[Claim]:
    tokens = [
        _Token(str(found.lastgroup), found.group(), found.start(), found.end())
        for found in _TOKEN.finditer(line)
    ]
    at = 0
    while at < len(tokens):
        reader = _Reader(tokens, at)
        sides = reader.sides() if _may_begin(tokens, at) else []
        if len(sides) > 1 and any(side.operations for side in sides):
            told = _stands_alone(line, tokens, at, reader.at)
            holds = _holds(sides, reader.is_about, reader.has_range) if told else None
            if holds is False and _REJECTED.search(line[: tokens[at].start].lower()):
                holds = None
            yield Claim(line[tokens[at].start : reader.first_equals].replace(" ", ""), holds)
            at = reader.at
        else:
            at = max(at + 1, reader.reached if tokens[at].kind == "number" else 0)


def _may_begin(tokens: Sequence[_Token], at: int) -> bool:
    token = tokens[at]
    if token.text == "-" and at + 1 < len(tokens):
        alone = at == 0 or tokens[at - 1].kind in ("equals", "else")
        return alone and tokens[at + 1].kind == "number" and tokens[at + 1].start == token.end
    return token.kind == "number" or token.text == "("


def _stands_alone(line: str, tokens: Sequence[_Token], start: int, end: int) -> bool:
    """Whether nothing before or behind a claim is a part of its sums."""
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


class _Reader:
    """Reads `side = side [= side ...]` from a token on; `at` is behind what is a claim, `reached` behind all that was
    looked at."""

    def __init__(self, tokens: Sequence[_Token], at: int) -> None:
        self._tokens = tokens
        self.at = self.reached = at
        self.first_equals = 0
        self.is_about = False
        self.has_range = False
        self._start_side()

    def sides(self) -> list[_Side]:
        """Those that could be read; fewer than two: this is no claim."""
        found: list[_Side] = []
        while True:
            before = self.at
            side = self._side()
            if side is None:
                self.reached, self.at = self.at, before - 1 if found else before
                return found
            found.append(side)
            token = self._peek()
            if token is None or token.kind != "equals":
                self.reached = self.at
                return found
            self.first_equals = self.first_equals or token.start
            self.is_about |= token.text == "≈"
            self.at += 1

    def _start_side(self) -> None:
        self._numbers: list[Fraction] = []
        self._units: list[str] = []
        self._operations = 0
        self._places: int | None = None
        self._plain = True
        self._depth = 0

    def _side(self) -> _Side | None:
        self._start_side()
        try:
            value = self._sum()
        except ZeroDivisionError:
            value = None
        except _NoSum:
            return None
        if not self._numbers:
            return None
        alone = len(self._numbers) == 1
        return _Side(
            value, self._numbers[0], self._operations, self._places if alone else None, tuple(self._units),
            self._plain,
        )  # fmt: skip

    def _sum(self) -> Fraction:
        total = self._product()
        while (sign := self._sign()) in ("+", "-"):
            self.at += 1
            term = self._product()
            total = total + term if sign == "+" else total - term
        return total

    def _product(self) -> Fraction:
        value = self._value()
        while (sign := self._sign()) in ("*", "/"):
            self.at += 1
            other = self._value()
            value = value * other if sign == "*" else value / other
        return value

    def _sign(self) -> str:
        """The operation that stands here, with a number behind it; "" for none."""
        token, behind = self._peek(), self._peek(1)
        if token is None or behind is None or not (behind.kind == "number" or behind.text in ("(", "-")):
            return ""
        if token.kind == "sign" or token.text in ("x", "X"):
            self._operations += 1
            if token.text in "-–" and self._touches(token):
                self.has_range = True
            return _SIGNS.get(token.text, token.text)
        return ""

    def _touches(self, token: _Token) -> bool:
        return self._tokens[self.at - 1].end == token.start

    def _value(self) -> Fraction:
        token, behind = self._peek(), self._peek(1)
        if token is not None and token.text == "(":
            return self._in_parentheses()
        if token is not None and token.text in "-−" and behind is not None and behind.kind == "number":
            self.at += 1
            return -self._value()
        if token is None or token.kind != "number":
            raise _NoSum
        self.at += 1
        value = self._read(token.text)
        self._numbers.append(value)
        if len(self._numbers) > _MOST_NUMBERS:
            raise _NoSum
        return self._with_unit(token, value)

    def _in_parentheses(self) -> Fraction:
        self.at += 1
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NoSum
        value = self._sum()
        closing = self._peek()
        if closing is None or closing.text != ")":
            raise _NoSum
        self.at += 1
        self._depth -= 1
        return value

    def _with_unit(self, number: _Token, value: Fraction) -> Fraction:
        unit = self._peek()
        if unit is None or unit.kind != "word" or (unit.text in ("x", "X") and self._peek(1) is not None):
            touches = unit is not None and unit.text in ("x", "X") and unit.start == number.end
            if touches and not (self._peek(1) and self._peek(1).kind == "number"):  # type: ignore[union-attr]
                raise _NoSum
            return value
        behind = self._peek(1)
        goes_on = behind is not None and (behind.kind in ("sign", "equals") or behind.text in ("x", ")"))
        known = bool(_SHORT_UNIT.fullmatch(unit.text)) or unit.text in ("%", "°") or "/" in unit.text
        if not known and (len(unit.text) < 3 or unit.start == number.end):
            if goes_on or unit.start == number.end:
                raise _NoSum
            return value
        if goes_on or known or behind is None or behind.kind != "word":
            self._units.append(unit.text.lower().rstrip("s"))
            self.at += 1
            if unit.text == "%":
                self._plain = False
                return value / 100
        return value

    def _read(self, text: str) -> Fraction:
        if sum(map(str.isdigit, text)) > _LONGEST_NUMBER:
            raise _NoSum
        if re.match(r"0\d", text):
            raise _NoSum
        if re.fullmatch(r"\d+,\d{1,2}", text):
            self._plain = False
            text = text.replace(",", ".")
        if re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", text):
            self._plain = False
        plain = text.replace(",", "")
        self._places = len(plain.partition(".")[2])
        return Fraction(plain if plain[0] != "." else f"0{plain}")

    def _peek(self, ahead: int = 0) -> _Token | None:
        at = self.at + ahead
        return self._tokens[at] if at < len(self._tokens) else None


class _NoSum(Exception):
    """What stands here is no sum."""


def _holds(sides: Sequence[_Side], is_about: bool, has_range: bool) -> bool | None:
    """Whether each side is the one before it; in a run-on chain ("2 + 3 = 5 + 4 = 9") its first number is."""
    found = [_same(before, after, is_about) for before, after in pairwise(sides)]
    if False not in found:
        return None if None in found else True
    unsure = not all(side.is_plain for side in sides) or (
        has_range and sides[-1].value != sides[0].value and _is_range(sides)
    )
    return None if unsure else False


def _is_range(sides: Sequence[_Side]) -> bool:
    """Whether the first side may be "5-10": less than nothing as a sum, and the result is not."""
    first, second = sides[0].value, sides[1].value
    return first is not None and first < 0 and second is not None and second >= 0


def _same(before: _Side, after: _Side, is_about: bool) -> bool | None:
    value, said = before.value, after.value
    if value is None or said is None:
        return None
    runs_on = bool(after.operations) and after.first == value
    if value == said or runs_on:
        return True
    if after.places and abs(value - said) < Fraction(1, 10**after.places):
        return True
    if before.places and before.operations == 0 and abs(value - said) < Fraction(1, 10**before.places):
        return True
    if is_about:
        return abs(value - said) <= _NEAR * abs(value)
    whole = after.places == 0 and value.denominator != 1 and abs(value - said) < 1
    if whole or _other_units(before, after, value, said):
        return None
    return False


def _other_units(before: _Side, after: _Side, value: Fraction, said: Fraction) -> bool:
    """Whether the two sides may be the same in other units."""
    units = {*before.units, *after.units}
    if len(set(before.units)) > 1 or (before.units and after.units and set(before.units) != set(after.units)):
        return True
    if not units or not value or not said:
        return False
    ratio = abs(value / said)
    return ratio in _CONVERSIONS or 1 / ratio in _CONVERSIONS
