"""The OpenClaw agent as a client (measured with 2026.3.13 and 2026.9.6).

It stamps user texts with the time, ends the first one with a line on its runtime, and closes every request
with a message of internal context that is gone from the history of the next one. Its own housekeeping
(heartbeats, memory, summaries, subagents) comes over the same route; without a plug-in only the text tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_INTERNAL_CONTEXT = re.compile(
    r"\s*<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>", re.DOTALL
)
_TIME_STAMP = re.compile(
    r"\A\s*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [A-Z][\w+:-]*\] ?"
)
_RUNTIME_LINE = re.compile(r"\s*^Runtime: agent=[^\n]*\Z", re.MULTILINE)
_SESSION_HEADERS = ("x-session-affinity", "session_id", "x-client-request-id")
_COUNTER = re.compile(r":\d+\Z")

SIDE_MARKS: tuple[tuple[str, str], ...] = (
    ("system", "You are a context summarization assistant"),
    ("last", "Pre-compaction memory flush"),
    ("last", "Follow the heartbeat monitor"),
    ("last", "Read HEARTBEAT.md"),
    ("last", "A background task completed"),
    ("first", "[Subagent Context]"),
)
"""(which message, how its text begins): first or last user message, or the system prompt. They drift by
version."""


def clean_text(text: str) -> str:
    """The text a person or tool wrote."""
    if "OPENCLAW_INTERNAL_CONTEXT" in text:
        text = _INTERNAL_CONTEXT.sub("", text)
    if "Runtime: agent=" in text:
        text = _RUNTIME_LINE.sub("", text)
    return _TIME_STAMP.sub("", text, count=1).strip()


def affinity_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The session in `compat` headers or `prompt_cache_key`, written `<session id>:<n>`."""
    values = [headers.get(name) for name in _SESSION_HEADERS]
    key = body.get("prompt_cache_key")
    if values[0] is None and values[1] is None:
        values = [None]  # a bare x-client-request-id is anybody's request number
    values.append(key if isinstance(key, str) else None)
    found = next((value for value in values if value), None)
    return _COUNTER.sub("", found) if found else None


def is_side_turn(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a mark of OpenClaw's own turns is there."""
    users = [text for text in (_user_text(message) for message in messages) if text]
    system = next((_text(message) for message in messages if message.get("role") == "system"), "")
    places = {"system": system, "first": users[0] if users else "", "last": users[-1] if users else ""}
    return any(places[place].startswith(mark) for place, mark in SIDE_MARKS)


def _user_text(message: Mapping[str, Any]) -> str:
    return clean_text(_text(message)) if message.get("role") == "user" else ""


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""
