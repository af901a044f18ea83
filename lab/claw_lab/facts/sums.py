"""Parses sums in a text into tokens and the sides of `a op b = c`. The values are exact fractions; code of the text
is never run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])|\d+,\d{1,2}(?![\d,])|\d+(?:\.\d+)?|(?<![\w.])\.\d+"
_TOKEN = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<word>[^\W\d_]+(?:/[^\W\d_]+)?[²³]?|%|°)|(?P<other>[!<>:=]=+|=>|->|\.\.+|--+)"
    r"|(?P<equals>[=≈])|(?P<sign>[-+−–*×·/÷])|(?P<paren>[()])|(?P<else>\S)"
)
_SIGNS = {"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "x": "*", "X": "*"}
_SHORT_UNIT = re.compile(r"[mgshlLtWVANJKCFk]|[cmdk]m|[km]g|ml|kW|ft|lb|oz|min|hrs?")
_LONGEST_NUMBER = 18
_DEEPEST, _MOST_NUMBERS = 16, 32
"""Limits of nested parentheses and of numbers of one side, against hostile texts."""


@dataclass(frozen=True)
class Token:
    """A part of a line from `start` to `end`: number, word (a unit), other, equals, sign, paren or else."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Side:
    """The text between two `=`. `first`: its first number; `places`: decimals, if it is one number."""

    value: Fraction | None
    first: Fraction
    operations: int
    places: int | None
    units: tuple[str, ...]
    is_plain: bool


def tokens_of(line: str) -> list[Token]:
    """Returns the tokens of a line: all that may be part of a sum, and those that end one."""
    return [
        Token(str(match.lastgroup), match.group(), match.start(), match.end())
        for match in _TOKEN.finditer(line)
    ]


class Reader:
    """Parses `side = side [= side ...]` from a token on; `at` is the index after the claim, `reached` the index after
    the last token read."""

    def __init__(self, tokens: Sequence[Token], at: int) -> None:
        self._tokens = tokens
        self.at = self.reached = at
        self.first_equals = 0
        self.is_about = False
        self.has_range = False
        self._start_side()

    def sides(self) -> list[Side]:
        """Returns the parsed sides; with fewer than two there is no claim."""
        sides: list[Side] = []
        while True:
            before = self.at
            side = self._side()
            if side is None:
                self.reached, self.at = self.at, before - 1 if sides else before
                return sides
            sides.append(side)
            token = self._peek()
            if token is None or token.kind != "equals":
                self.reached = self.at
                return sides
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

    def _side(self) -> Side | None:
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
        return Side(
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
        """Returns the operation at this place if a number follows it; otherwise ""."""
        token, behind = self._peek(), self._peek(1)
        if token is None or behind is None or not (behind.kind == "number" or behind.text in ("(", "-")):
            return ""
        if token.kind == "sign" or token.text in ("x", "X"):
            self._operations += 1
            if token.text in "-–" and self._touches(token):
                self.has_range = True
            return _SIGNS.get(token.text, token.text)
        return ""

    def _touches(self, token: Token) -> bool:
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

    def _with_unit(self, number: Token, value: Fraction) -> Fraction:
        unit, behind = self._peek(), self._peek(1)
        if unit is None or unit.kind != "word":
            return value
        if unit.text in ("x", "X"):
            if unit.start == number.end and (behind is None or behind.kind != "number"):
                raise _NoSum
            if behind is not None:
                return value
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

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self.at + ahead
        return self._tokens[at] if at < len(self._tokens) else None


class _NoSum(Exception):
    """The text is not a sum."""
