"""The body of a request as JSON, and its single fields: a wrong one is named, absent and null are the same.

Values of an address are read here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import orjson

from openclaw.errors import ClientError

MAX_DEPTH = 100
"""Levels of objects and lists in a request body; a tool's JSON schema has perhaps ten."""
MAX_CONTAINERS = 200_000
"""Objects and lists in it; each of 10,000 messages has perhaps three."""


def parse_body(data: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises ClientError."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ClientError(f"the request body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise ClientError("the request body must be a JSON object", code="invalid_json")
    check_shape(body)
    return body


def boolean(body: Mapping[str, object], name: str, prefix: str = "") -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(prefix + name, "true or false")
    return bool(value)


def string(body: Mapping[str, object], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(name, "a string")
    return value


def integer(body: Mapping[str, object], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(name, f"a whole number from {least} to {most}")
    return value


def number(body: Mapping[str, object], name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong(name, "a number")
    if not least <= value <= most:
        raise wrong(name, f"a number from {least:g} to {most:g}")
    return float(value)


def function_tools(
    given: object, read: Callable[[object, str], dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """The tools of a dialect as chat's, whose functions `read` makes of each and of where it stands."""
    if given is None:
        return None
    if not isinstance(given, list):
        raise wrong("tools", "a list")
    return [
        {"type": "function", "function": read(tool, f"tools[{index}]")} for index, tool in enumerate(given)
    ]


def function_call(call_id: object, name: str, arguments: str) -> dict[str, Any]:
    """A call in an assistant's message of chat; `arguments` is JSON text."""
    return {"id": str(call_id), "type": "function", "function": {"name": name, "arguments": arguments}}


def whole(text: str, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises ClientError."""
    if not text:
        return default
    if len(text) > 12 or not text.lstrip("-").isdecimal() or not least <= int(text) <= most:
        raise ClientError(f"{name} must be a whole number from {least} to {most}", name)
    return int(text)


def printable(text: str, name: str) -> str:
    """An id of the address. Raises ClientError (404) for what none can be."""
    if not text.isprintable():
        raise ClientError(f"there is no {name} {text!r}", name, "not_found", 404)
    return text


def wrong(param: str, expected: str) -> ClientError:
    return ClientError(f"{param} must be {expected}", param)


def check_shape(value: Any) -> None:
    """Raises ClientError for JSON that is nested more than MAX_DEPTH levels, or has more than MAX_CONTAINERS objects
    and lists: each costs time while nobody else is answered."""
    level, count = [value], 0
    for _ in range(MAX_DEPTH + 1):
        inside = (
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        )
        level = list(islice(inside, MAX_CONTAINERS - count + 1))
        count += len(level)
        if not level:
            return
        if count > MAX_CONTAINERS:
            what = f"has more than {MAX_CONTAINERS} objects and lists"
            raise ClientError(f"the request body {what}", code="invalid_json")
    raise ClientError(f"the request body is nested more than {MAX_DEPTH} levels deep", code="invalid_json")
