"""Parses a tool call from its tokens, and checks early whether it can still become valid.

A call is valid if it is complete, is JSON in its family's format, names a tool of the request, and has an object as
its arguments. Clients execute calls that they receive and cannot take a part back, so only valid calls are sent as
calls. Everything else is sent as text.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any, Protocol

from openclaw.formats.call_prefix import CallPrefix
from openclaw.formats.deltas import Delta, is_unicode, json_text, whole_call


class CallReader(Protocol):
    """Parser of one call. Tokens are those between its markers."""

    def add(self, token: int) -> bool:
        """Adds a token; returns whether the call can still become valid."""

    def close(self) -> list[Delta]:
        """Returns the call after its end marker; [] if it is invalid."""


class JsonReader:
    """Parser of a call that is a JSON object, checked incrementally."""

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
    """Parser of a call in any other format: the family's own parser gets it when it is complete.

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
    """Returns the allowed tool names; None, which allows any, if the tools are unknown."""
    return None if tools is None else frozenset(tool["function"]["name"] for tool in tools)


def calls_of(parsed: Any, names: frozenset[str] | None) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the calls from a parsed response of `renderers`: (name, JSON text of the arguments) of each valid call,
    and the text of each invalid one."""
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
    """Returns the arguments as JSON text, unchanged if the model wrote text; None unless they are an object."""
    if isinstance(arguments, str):
        return arguments if is_unicode(arguments) and isinstance(_loads(arguments), dict) else None
    if arguments is None:
        return "{}"
    return json_text(arguments) if isinstance(arguments, dict) else None


def _loads(text: str) -> Any:
    """Returns a JSON value; None for invalid JSON, including NaN and Infinity."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
