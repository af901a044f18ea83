"""A tool call read from its tokens: what is certain of it while they come, and what it proved to be at its end."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any, Protocol

from openclaw.formats.deltas import Delta, is_unicode, json_text, whole_call
from openclaw.formats.json_tool_call import JsonCall


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
