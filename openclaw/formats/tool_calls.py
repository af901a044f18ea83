"""A tool call read from its tokens: whether it can still become a sound one, and what it is at its end.

A call is sound when it is whole, is JSON in its family's form, names a tool of the request, and has an object as its
arguments. A client executes what it receives as a call and cannot give a part of one back, so only sound calls are
passed on as calls. Everything else is text.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any, Protocol

from openclaw.formats.call_prefix import CallPrefix
from openclaw.formats.deltas import Delta, is_unicode, json_text, whole_call


class CallReader(Protocol):
    """One call. Tokens are those between its markers."""

    def add(self, token: int) -> bool:
        """Returns whether the call can still become sound after one more token."""

    def close(self) -> list[Delta]:
        """Returns the call, after its end marker; empty when it is unsound."""


class JsonReader:
    """A call that is a JSON object, checked while it is being written."""

    def __init__(self, token_bytes: Callable[[int], bytes], names: frozenset[str] | None) -> None:
        self._bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._names = names
        self._prefix = CallPrefix(names)

    def add(self, token: int) -> bool:
        return self._read(self._decoder.decode(self._bytes(token)))

    def close(self) -> list[Delta]:
        if not self._read(self._decoder.decode(b"", final=True)):
            return []
        text = "".join(self._pieces)
        call = _loads(text)
        if not isinstance(call, dict) or not _is_name(call.get("name"), self._names):
            return []
        call_arguments, spelled = call.get("arguments"), self._prefix.arguments
        written = text[slice(*spelled)] if isinstance(call_arguments, dict) and spelled else call_arguments
        arguments = _argument_text(written)
        return [] if arguments is None else whole_call(call["name"], arguments)

    def _read(self, text: str) -> bool:
        self._pieces.append(text)
        return self._prefix.add(text)


class WholeReader:
    """A call in any other form: the family's own parser reads it when it is whole.

    Args:
        parse: ids of a call, markers included, to `renderers`' parsed response.
        begin, end: the markers.
    """

    def __init__(
        self, parse: Callable[[list[int]], Any], begin: int, end: int, names: frozenset[str] | None
    ) -> None:
        self._parse = parse
        self._ids = [begin]
        self._end = end
        self._names = names

    def add(self, token: int) -> bool:
        self._ids.append(token)
        return True

    def close(self) -> list[Delta]:
        calls, unsound = calls_of(self._parse([*self._ids, self._end]), self._names)
        return [] if unsound else [delta for call in calls for delta in whole_call(*call)]


def names_of(tools: list[dict[str, Any]] | None) -> frozenset[str] | None:
    """Returns the names that a call may have; None when tools are unknown, which allows any."""
    return None if tools is None else frozenset(tool["function"]["name"] for tool in tools)


def calls_of(parsed: Any, names: frozenset[str] | None) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the calls that a parser of `renderers` read: (name, JSON text of the arguments) of each sound call, and
    the text of each unsound one."""
    sound, unsound = [], []
    for call in parsed.tool_calls:
        arguments = _argument_text(call.arguments) if call.status == "ok" else None
        if arguments is not None and is_unicode(arguments) and _is_name(call.name, names):
            sound.append((call.name, arguments))
        else:
            unsound.append(call.raw)
    return sound, unsound


def _is_name(name: object, names: frozenset[str] | None) -> bool:
    if not isinstance(name, str) or not name or not is_unicode(name):
        return False
    return names is None or name in names


def _argument_text(arguments: object) -> str | None:
    """Arguments as JSON text, as they are if the model wrote text; None unless they are an object."""
    if isinstance(arguments, str):
        return arguments if is_unicode(arguments) and isinstance(_loads(arguments), dict) else None
    if arguments is None:
        return "{}"
    return json_text(arguments) if isinstance(arguments, dict) else None


def _loads(text: str) -> Any:
    """Returns a JSON value; None for invalid JSON, NaN and Infinity included."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
