"""Did a tool call work? Exit codes, error objects and error texts in what the tool gave back."""

from __future__ import annotations

from typing import Any

import orjson

from openclaw.judge.rules.tool_text import text_failed

_BAD_STATUS = frozenset(
    {"error", "failed", "failure", "timeout", "denied", "forbidden", "cancelled", "killed"}
)
_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "errcode", "errno")
_HTTP_CODES = ("status", "statusCode", "status_code", "http_status", "code")
_NESTED = ("result", "details", "data", "output")


def tool_failed(text: str) -> str | None:
    """Why a tool result is a failure, in a few words; None for a success."""
    value = _as_object(text)
    return text_failed(text) if value is None else _object_failed(value)


def _as_object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _object_failed(value: dict[str, Any]) -> str | None:
    for name in ("error", "errors"):
        if value.get(name):
            return f"{name} in the result"
    for name in ("isError", "is_error"):
        if value.get(name) is True:
            return f"{name} is true"
    for name in ("ok", "success"):
        if value.get(name) is False:
            return f"{name} is false"
    found = _code_failed(value)
    if found:
        return found
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _BAD_STATUS:
        return f"status is {status.lower()}"
    inner = (value[name] for name in _NESTED if isinstance(value.get(name), dict))
    return next((why for why in map(_object_failed, inner) if why), None)


def _code_failed(value: dict[str, Any]) -> str | None:
    for name in _EXIT_CODES:
        code = value.get(name)
        if isinstance(code, int) and code != 0:
            return f"{name} is {code}"
    for name in _HTTP_CODES:
        code = value.get(name)
        if isinstance(code, int) and 400 <= code < 600:
            return f"{name} is {code}"
    return None
