"""Parses tool calls from tokens, and detects early that a call is invalid.

A call is valid if it is complete, in the format of its family, names a tool of the request, and its arguments are a
JSON object. Clients execute the calls that they receive, and a streamed part cannot be taken back. Therefore only valid
calls are sent as calls; invalid ones are sent as text.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any, Protocol

from openclaw.formats.call_prefix import CallPrefix
from openclaw.formats.deltas import Delta, is_unicode, json_text, whole_call


class CallReader(Protocol):
    """Parses one call from the tokens between its markers."""

    def add(self, token: int) -> bool:
        """Adds a token. Returns whether the call can still become valid."""

    def close(self) -> list[Delta]:
        """Ends the call. Returns its deltas; [] if it is invalid."""


class JsonReader:
    """Parses a call that is a JSON object, and checks it incrementally."""

    def __init__(self, token_bytes: Callable[[int], bytes], names: frozenset[str] | None) -> None:
        self._bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._names = names
        self._prefix = CallPrefix(names)

    def add(self, token: int) -> bool:
        """See `CallReader.add`."""
        return self._read(self._decoder.decode(self._bytes(token)))

    def close(self) -> list[Delta]:
        """See `CallReader.close`. The arguments are returned as the model wrote them."""
        if not self._read(self._decoder.decode(b"", final=True)):
            return []
        text = "".join(self._pieces)
        call = _loads(text)
        if not isinstance(call, dict) or not _is_name(call.get("name"), self._names):
            return []
        value, position = call.get("arguments"), self._prefix.arguments
        verbatim = text[slice(*position)] if isinstance(value, dict) and position else value
        arguments = _argument_text(verbatim)
        return [] if arguments is None else whole_call(call["name"], arguments)

    def _read(self, text: str) -> bool:
        self._pieces.append(text)
        return self._prefix.add(text)


class WholeReader:
    """Parses a call in another format when it is complete, with the parser of its family.

    Args:
        parse: converts the ids of a call, including its markers, to a parsed response of `renderers`.
        begin: id of the marker before a call.
        end: id of the marker after a call.
        names: tools that a call may name; None for any.
    """

    def __init__(
        self, parse: Callable[[list[int]], Any], begin: int, end: int, names: frozenset[str] | None
    ) -> None:
        self._parse = parse
        self._ids = [begin]
        self._end = end
        self._names = names

    def add(self, token: int) -> bool:
        """See `CallReader.add`. Returns True, because only complete calls are checked."""
        self._ids.append(token)
        return True

    def close(self) -> list[Delta]:
        """See `CallReader.close`."""
        calls, invalid = calls_of(self._parse([*self._ids, self._end]), self._names)
        return [] if invalid else [delta for call in calls for delta in whole_call(*call)]


def names_of(tools: list[dict[str, Any]] | None) -> frozenset[str] | None:
    """Returns the names of tools; None, which allows any name, if the tools are unknown."""
    return None if tools is None else frozenset(tool["function"]["name"] for tool in tools)


def calls_of(parsed: Any, names: frozenset[str] | None) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the calls in a parsed response of `renderers`: name and JSON arguments of the valid ones, and the text of
    the invalid ones."""
    valid, invalid = [], []
    for call in parsed.tool_calls:
        arguments = _argument_text(call.arguments) if call.status == "ok" else None
        if arguments is not None and is_unicode(arguments) and _is_name(call.name, names):
            valid.append((call.name, arguments))
        else:
            invalid.append(call.raw)
    return valid, invalid


def _is_name(name: object, names: frozenset[str] | None) -> bool:
    if not isinstance(name, str) or not name or not is_unicode(name):
        return False
    return names is None or name in names


def _argument_text(arguments: object) -> str | None:
    """Returns arguments as JSON text, unchanged if they are text; None if they are not a JSON object."""
    if isinstance(arguments, str):
        return arguments if is_unicode(arguments) and isinstance(_loads(arguments), dict) else None
    if arguments is None:
        return "{}"
    return json_text(arguments) if isinstance(arguments, dict) else None


def _loads(text: str) -> Any:
    """Returns the value of a JSON text; None if it is invalid, or contains NaN or Infinity."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
