"""Did a tool call work? Exit codes, error objects and error traces in what the tool gave back."""

from __future__ import annotations

import re
from typing import Any

import orjson

_EXIT_CODE = re.compile(r"\bexit(?:ed)?(?:\s+with)?\s+(?:code|status)\s*[:=]?\s*(-?\d+)", re.IGNORECASE)
_FAILURE = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^\s*(?:[A-Za-z_.]*(?:Error|Exception)|error|fatal|fatal error|panic|failed|failure)"
    r"\s*(?:\[[^\]]*\])?:\s"
    r"|^\s*(?:error|failed)\s*$"
    r"|^FAILED\s|\b[1-9]\d* (?:failed|errors?)\b(?=[ ,].*\bin\s[\d.]+ ?s|,|$)"
    r"|: command not found\b|: No such file or directory\b|: Permission denied\b|^Segmentation fault\b"
    r"|\bENOENT\b|\bEACCES\b|\bETIMEDOUT\b|^npm ERR!|^(?:command|process|request) (?:timed out|failed)\b",
    re.MULTILINE,
)
_CASELESS_FAILURE = re.compile(r"^\s*error:\s", re.IGNORECASE | re.MULTILINE)

_END_LENGTH = 10_000
"""Characters read of the beginning and of the end of a long result."""
_BAD_STATUS = frozenset(
    {"error", "failed", "failure", "timeout", "denied", "forbidden", "cancelled", "killed"}
)
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_NESTED = ("result", "details", "data", "output")


def tool_failed(text: str) -> str | None:
    """Why a tool result is a failure, in a few words; None for a success."""
    value = _as_object(text)
    if value is not None:
        return _object_failed(value)
    if len(text) > 2 * _END_LENGTH:
        text = f"{text[:_END_LENGTH]}\n{text[-_END_LENGTH:]}"
    codes = _EXIT_CODE.findall(text)
    if codes:
        return None if int(codes[-1]) == 0 else f"exit code {codes[-1]}"
    found = _FAILURE.search(text) or _CASELESS_FAILURE.search(text)
    return None if found is None else f"error text: {found.group().strip()[:60]}"


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
    for name in _CODES:
        code = value.get(name)
        if isinstance(code, int) and code != 0:
            return f"{name} is {code}"
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _BAD_STATUS:
        return f"status is {status.lower()}"
    inner = (value[name] for name in _NESTED if isinstance(value.get(name), dict))
    return next((why for why in map(_object_failed, inner) if why), None)
