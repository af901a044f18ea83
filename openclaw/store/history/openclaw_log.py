"""Reads transcripts of OpenClaw 2026.3 to 2026.9: ~/.openclaw/agents/AGENT/sessions/SESSION.jsonl, session format 3.

The first JSON line is of type `session`; `message`, `compaction` and others follow. `id` and `parentId` form a tree.
Transcripts do not contain the system prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.common.messages import text_of
from openclaw.store.history.past import (
    Entry,
    Line,
    PastSession,
    answer_of,
    past_session,
    result_of,
    tool_call,
)
from openclaw.types import Message

_INCOMPLETE = ("error", "aborted")
"""Values of `stopReason` of incomplete answers."""


def is_openclaw(first: object) -> bool:
    """Returns whether a JSON value is the first line of this format."""
    return isinstance(first, dict) and first.get("type") == "session" and isinstance(first.get("id"), str)


def read_openclaw(lines: Sequence[Line]) -> list[PastSession]:
    """Returns the session of a transcript as a list of one session."""
    entries, previous_id = [], None
    for number, line in enumerate(lines[1:]):
        id_ = str(line.get("id") or f"line {number}")
        parent = line.get("parentId", previous_id)
        entries.append(_entry(id_, parent, line))
        previous_id = id_
    return [past_session("openclaw", str(lines[0]["id"]), entries)]


def _entry(id_: str, parent: str | None, line: Line) -> Entry:
    if line.get("type") == "compaction":
        return Entry(
            id=id_,
            parent=parent,
            summary=str(line.get("summary") or ""),
            kept_from=line.get("firstKeptEntryId"),
        )
    message = line.get("message")
    if line.get("type") != "message" or not isinstance(message, dict):
        return Entry(id=id_, parent=parent)
    learn = message.get("stopReason") not in _INCOMPLETE
    return Entry(id=id_, parent=parent, message=_message(message), key=id_, learn=learn)


def _message(message: Line) -> Message | None:
    text = text_of(message)
    match message.get("role"):
        case "user":
            return {"role": "user", "content": text}
        case "toolResult":
            return result_of(message.get("toolCallId"), text)
        case "assistant":
            parts = message.get("content")
            calls = [
                tool_call(part.get("id"), part.get("name"), part.get("arguments"))
                for part in (parts if isinstance(parts, list) else [])
                if isinstance(part, dict) and part.get("type") == "toolCall"
            ]
            return answer_of(text, calls)
        case _:
            return None
