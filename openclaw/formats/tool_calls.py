"""A tool call read from its tokens or its JSON text: what is certain of it while it grows, and what it is at its end."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import Any, Protocol

from openclaw.formats.deltas import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    is_unicode,
    json_text,
    whole_call,
)

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.)+")\s*,\s*"arguments"\s*:\s*(?=\{)')
LONGEST_HEAD = 1000
"""A call whose arguments do not begin within so many characters is read as a whole."""


class CallReader(Protocol):
    """One call. Tokens are those between its markers."""

    def add(self, token: int) -> list[Delta]:
        """What is certain after one more token."""

    def close(self) -> list[Delta]:
        """The end marker came."""

    def cut(self) -> list[Delta]:
        """The answer ended inside the call."""


class JsonReader:
    """A call that is a JSON object, passed on while it is being written."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._call = JsonCall()

    def add(self, token: int) -> list[Delta]:
        text = self._decoder.decode(self._bytes(token))
        return self._call.add(text) if text else []

    def close(self) -> list[Delta]:
        text = self._decoder.decode(b"", final=True)
        return [*(self._call.add(text) if text else []), *self._call.close()]

    def cut(self) -> list[Delta]:
        return self._call.cut()


class WholeReader:
    """A call in any other form: the family's own parser reads it when it is whole.

    Args:
        parse: ids of a call, markers included, to `renderers`' parsed response.
        begin, end: the markers.
    """

    def __init__(self, parse: Callable[[list[int]], Any], begin: int, end: int) -> None:
        self._parse = parse
        self._ids = [begin]
        self._end = end

    def add(self, token: int) -> list[Delta]:
        self._ids.append(token)
        return []

    def close(self) -> list[Delta]:
        calls = calls_of(self._parse([*self._ids, self._end]))
        return [delta for name, arguments in calls for delta in whole_call(name, arguments)]

    def cut(self) -> list[Delta]:
        return []


def calls_of(parsed: Any) -> list[tuple[str, str]]:
    """(name, JSON text of the arguments) of every sound call in what a parser of `renderers` read."""
    found = [
        (call.name, _arguments(call.arguments))
        for call in parsed.tool_calls
        if call.status == "ok" and isinstance(call.name, str) and call.name
    ]
    return [(name, arguments) for name, arguments in found if is_unicode(name) and is_unicode(arguments)]


def _arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return json_text(arguments if arguments is not None else {})


class JsonCall:
    """One call, growing. The brace that closes the arguments is kept back until the whole call proved to be
    sound JSON, so that a call cut short can never be taken for a complete one."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._start: int | None = None
        self._depth = 0
        self._string = self._escaped = self._over = False

    def add(self, text: str) -> list[Delta]:
        """What is certain after some more text of the call."""
        self._text += text
        deltas: list[Delta] = []
        if self._start is None:
            head = _HEAD.match(self._text) if len(self._text) - len(text) <= LONGEST_HEAD else None
            name = _loads(head.group(1)) if head else None
            if head is None or name is None or not is_unicode(name):
                return []
            self._start = self._at = head.end()
            deltas.append(CallStart(name))
        fragment = self._scan()
        return [*deltas, CallArguments(fragment)] if fragment else deltas

    def close(self) -> list[Delta]:
        """The end marker came."""
        call = _loads(self._text.strip())
        name = call.get("name") if isinstance(call, dict) else None
        sound = isinstance(name, str) and bool(name) and is_unicode(name)
        if self._start is None:
            arguments = _argument_text(call.get("arguments", {})) if sound else None
            return whole_call(str(name), arguments) if arguments is not None else []
        if sound and self._over and _loads(self._text[self._start : self._at + 1]) == call.get("arguments"):
            return [CallArguments("}"), CallEnd(True)]
        return [CallEnd(False)]

    def cut(self) -> list[Delta]:
        """The answer ended inside the call."""
        return [] if self._start is None else [CallEnd(False)]

    def _scan(self) -> str:
        """Argument text up to the brace that closes it."""
        start = self._at
        while not self._over and self._at < len(self._text):
            character = self._text[self._at]
            if self._escaped:
                self._escaped = False
            elif self._string:
                self._escaped = character == "\\"
                self._string = character != '"'
            elif character == '"':
                self._string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._over = True
                    break
            self._at += 1
        return self._text[start : self._at]


def _argument_text(arguments: object) -> str | None:
    """Arguments as JSON text: as they are where the model wrote text, which must be JSON then."""
    if isinstance(arguments, str):
        return arguments if is_unicode(arguments) and _loads(arguments) is not None else None
    return json_text(arguments)


def _loads(text: str) -> Any:
    """A JSON value; None for what is none, NaN and Infinity included."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
