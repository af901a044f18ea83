"""The exit code in a tool result and what the program itself printed, in the forms in which agents show both.

OpenClaw writes `(Command exited with code 1)` last or a JSON error, Claude Code `Exit code 1` first, Codex a head of
lines that ends in `Output:`, others JSON fields, tags, or a sentence in brackets. A code counts only at those places:
elsewhere it is text that the program printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

_LINE = re.compile(
    r"""^[\[(<*\s]*(?:error:\s*)?(?:(?:the\s+)?(?:command|process|program|script|task|shell|bash|job|tool)\s+)?(?:
        (?:exited|finished|completed|terminated|failed|ended|returned)\s+with\s+
            (?:an?\s+)?(?:non-?zero\s+)?(?:exit\s+|return\s+)?(?:code|status)
      | (?:exit|return)[ _-]?(?:code|status|value)?
      | (?:退出|返回|错误)(?:代?码|状态|值)
    )\s*(?:of|is|was|[:=：为])?\s*(-?\d+)\s*(?:[(:,].*)?[\])>.*\s]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_TAG = re.compile(
    r"^\s*<(returncode|return_code|exit_?code|exit_?status)>\s*(-?\d+)\s*</\1>\s*", re.IGNORECASE
)
_OUTPUT_TAG = re.compile(r"^\s*<(output|stdout|result)>\n?(.*?)\n?</\1>\s*", re.DOTALL | re.IGNORECASE)
_HEAD_END = re.compile(r"^(?:output|stdout)\s*:\s*$", re.IGNORECASE)
_HEAD_LINES = 8
_NOTHING = re.compile(
    r"^[\[(<]?\s*(?:(?:bash|command|tool|process) (?:completed|ran|finished|executed)[\w ]*(?:with|and) )?"
    r"(?:no output|empty output|\(?no output\)?|no content)\s*[\])>.]*$",
    re.IGNORECASE,
)
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status", "exitStatus")
_BODIES = ("output", "stdout", "stderr", "aggregated", "content", "text", "error")
_NESTED = ("metadata", "details", "result", "data", "output")
_EDGE = 20_000


@dataclass(frozen=True)
class Report:
    """code: the exit code, None where the result names none; body: what the program printed, empty for nothing;
    value: the JSON object that the result is, unless it is one that only wraps an output."""

    code: int | None
    body: str
    value: dict[str, Any] | None = None


def read_report(text: str) -> Report:
    value = as_object(text)
    if value is None:
        return _of_text(text)
    code = _code_in(value)
    if code is None and value.get("status") == "error" and isinstance(value.get("error"), str):
        inner = _of_text(value["error"])
        return Report(inner.code or None, inner.body, None if inner.code else value)
    if code is None:
        return Report(None, text, value)
    parts = [value[name] for name in _BODIES if isinstance(value.get(name), str)]
    inner_parts = [
        inner[name]
        for inner in (value.get(key) for key in _NESTED)
        if isinstance(inner, dict)
        for name in _BODIES
        if isinstance(inner.get(name), str)
    ]
    return Report(code, _said("\n".join(parts + inner_parts)))


def as_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _code_in(value: dict[str, Any]) -> int | None:
    for holder in (value, *(value.get(key) for key in _NESTED)):
        if isinstance(holder, dict):
            for name in _CODES:
                if isinstance(holder.get(name), int) and not isinstance(holder[name], bool):
                    return int(holder[name])
    return None


def _of_text(text: str) -> Report:
    if len(text) > 2 * _EDGE:
        text = f"{text[:_EDGE]}\n{text[-_EDGE:]}"
    tag = _TAG.search(text)
    if tag:
        rest = text[tag.end() :]
        output = _OUTPUT_TAG.match(rest)
        return Report(int(tag[2]), _said(output[2] if output else rest))
    lines = text.strip("\n").split("\n")
    head = next((i for i, line in enumerate(lines[:_HEAD_LINES]) if _HEAD_END.match(line)), 0)
    for first in range(head or 1):
        found = _LINE.match(lines[first])
        if found:
            return Report(_number(found), _said("\n".join(lines[(head or first) + 1 :])))
    filled = [i for i, line in enumerate(lines) if line.strip()]
    found = _LINE.match(lines[filled[-1]]) if filled else None
    if found:
        return Report(_number(found), _said("\n".join(lines[: filled[-1]])))
    return Report(None, _said(text))


def _number(found: re.Match[str]) -> int:
    return int(found[1])


def _said(body: str) -> str:
    bare = body.strip()
    return "" if _NOTHING.match(bare) else bare
