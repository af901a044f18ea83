"""Incremental JSON parser that checks whether a text can still become a valid tool call."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_LITERAL = re.compile(r"[-+.0-9A-Za-z]*")
_NUMBER_PREFIX = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][-+]?[0-9]*)?)?")
_WORDS = ("true", "false", "null")
LONGEST_NUMBER = 4300
"""Most characters of a number. Python's own parser rejects integers with more digits."""
_ESCAPES = '"\\/bfnrt'


class _Expect(Enum):
    VALUE = auto()
    ITEM = auto()
    """A value or the end of the list."""
    KEY = auto()
    MEMBER = auto()
    """A key or the end of the object."""
    COLON = auto()
    COMMA = auto()
    """A comma, or the end of the list or object."""
    NOTHING = auto()
    """The object of the call is complete."""


class CallPrefix:
    """Checks the text of a call in parts.

    Args:
        names: tools that a call may name; None for any.

    Attributes:
        arguments: start and end of the value of `arguments` in the whole text; None until it is complete.
    """

    def __init__(self, names: frozenset[str] | None) -> None:
        self._names = names
        self._possible = True
        self._expect = _Expect.VALUE
        self._open: list[str] = []
        self._read = 0
        self._key: str | None = None
        self._string: list[str] | None = None
        self._literal: str | None = None
        self._escape: str | None = None
        self._is_key = False
        self._start = 0
        self.arguments: tuple[int, int] | None = None

    def add(self, text: str) -> bool:
        """Adds text. Returns whether the text so far can still become a valid call."""
        at = 0
        while at < len(text) and self._possible:
            if self._escape is not None:
                at = self._in_escape(text, at)
            elif self._string is not None:
                at = self._in_string(text, at)
            elif self._literal is not None:
                at = self._in_literal(text, at)
            else:
                self._structure(text[at], self._read + at)
                at += 1
        self._read += len(text)
        return self._possible

    def _in_string(self, text: str, at: int) -> int:
        assert self._string is not None
        match = _PLAIN.match(text, at)
        end = match.end() if match else at
        self._string.append(text[at:end])
        if end == len(text):
            return end
        if text[end] == "\\":
            self._escape = ""
        elif text[end] == '"':
            self._end_string(self._read + end + 1)
        else:
            self._possible = False
        return end + 1

    def _in_escape(self, text: str, at: int) -> int:
        assert self._string is not None and self._escape is not None
        self._escape += text[at]
        escape = self._escape
        if escape[0] == "u":
            self._possible = len(escape) == 1 or escape[-1] in "0123456789abcdefABCDEF"
        else:
            self._possible = escape in _ESCAPES
        if escape[0] != "u" or len(escape) == 5:
            self._string.append("\\" + escape)
            self._escape = None
        return at + 1

    def _in_literal(self, text: str, at: int) -> int:
        match = _LITERAL.match(text, at)
        end = match.end() if match else at
        literal = self._literal = (self._literal or "") + text[at:end]
        is_complete = end < len(text)
        if literal[:1].isalpha():
            self._possible = literal in _WORDS if is_complete else any(w.startswith(literal) for w in _WORDS)
        else:
            number = _NUMBER_PREFIX.fullmatch(literal) is not None and len(literal) <= LONGEST_NUMBER
            self._possible = number and not (is_complete and not literal[-1].isdigit())
        if is_complete:
            self._literal = None
            self._end_value(self._read + end)
        return end

    def _end_string(self, end: int) -> None:
        pieces, self._string = self._string or [], None
        outer = len(self._open) == 1
        if self._is_key:
            self._key = _decoded(pieces) if outer else self._key
            self._expect = _Expect.COLON
            return
        if outer and self._key == "name":
            name = _decoded(pieces)
            self._possible = bool(name) and (self._names is None or name in self._names)
        self._end_value(end)

    def _structure(self, character: str, place: int) -> None:
        """Handles one character outside strings, numbers and words."""
        if character in _SPACE:
            return
        expect = self._expect
        if expect in (_Expect.VALUE, _Expect.ITEM) and character != "]":
            self._begin_value(character, place)
        elif expect in (_Expect.KEY, _Expect.MEMBER) and character == '"':
            self._string, self._is_key = [], True
        elif expect is _Expect.COLON and character == ":":
            self._expect = _Expect.VALUE
        elif expect is _Expect.COMMA and character == ",":
            self._expect = _Expect.KEY if self._open[-1] == "{" else _Expect.VALUE
        elif (expect in (_Expect.COMMA, _Expect.MEMBER) and character == "}" and self._open[-1] == "{") or (
            expect in (_Expect.COMMA, _Expect.ITEM) and character == "]" and self._open[-1] == "["
        ):
            self._open.pop()
            self._end_value(place + 1)
        else:
            self._possible = False

    def _begin_value(self, character: str, place: int) -> None:
        if not self._open and character != "{":
            self._possible = False
            return
        if len(self._open) == 1:
            self._start = place
            allowed = {"name": '"', "arguments": '{"n'}.get(self._key or "")
            if allowed is not None and character not in allowed:
                self._possible = False
                return
        if character in "{[":
            self._open.append(character)
            self._expect = _Expect.MEMBER if character == "{" else _Expect.ITEM
        elif character == '"':
            self._string, self._is_key = [], False
        elif character == "-" or character.isdigit() or character in "tfn":
            self._literal = character
        else:
            self._possible = False

    def _end_value(self, end: int) -> None:
        self._expect = _Expect.COMMA if self._open else _Expect.NOTHING
        if len(self._open) == 1 and self._key == "arguments":
            self.arguments = (self._start, end)


def _decoded(pieces: list[str]) -> str | None:
    """Returns the value of a JSON string; None if it is invalid."""
    try:
        text: str = json.loads('"' + "".join(pieces) + '"')
    except ValueError:
        return None
    return text
