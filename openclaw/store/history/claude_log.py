"""Reads logs of Claude Code 2.0 to 2.1: ~/.claude/projects/FOLDER/SESSION.jsonl.

`uuid` and `parentUuid` form a tree. An answer consists of several lines with the same `message.id`; the results of
parallel tool calls are children of different lines. Side chains (subagents) and messages that the program writes are
omitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.clients.claude_code import CLAUDE_CODE
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

_PROGRAM_TEXTS = ("<command-name>", "<command-message>", "<local-command-", "[Request interrupted by user")
"""Prefixes of texts in the user role that the program writes."""
_SYNTHETIC = "<synthetic>"
"""Model name in answers that the program writes."""


def is_claude(line: object) -> bool:
    """Returns whether a JSON value is a line of this format."""
    return isinstance(line, dict) and isinstance(line.get("sessionId"), str) and "type" in line


def read_claude(lines: Sequence[Line]) -> list[PastSession]:
    """Returns the session of a log as a list of one session, whose `left_out` counts answers of subagents."""
    entries: list[Entry] = []
    side_answers = 0
    for line in lines:
        if not isinstance(line.get("uuid"), str):
            continue
        if line.get("isSidechain"):
            side_answers += line.get("type") == "assistant"
            continue
        entries += _entries(line)
    session_id = next(str(line["sessionId"]) for line in lines if is_claude(line))
    session = past_session("claude", session_id, entries)
    session.left_out.update({"side": side_answers} if side_answers else {})
    return [session]


def _entries(line: Line) -> list[Entry]:
    """Returns the entries of a line: one for each message. Each tool result is a message."""
    id_, parent, message = line["uuid"], line.get("parentUuid"), line.get("message")
    if line.get("type") not in ("user", "assistant") or not isinstance(message, dict) or line.get("isMeta"):
        return [Entry(id=id_, parent=parent)]
    if line["type"] == "assistant":
        if message.get("model") == _SYNTHETIC or line.get("isApiErrorMessage"):
            return [Entry(id=id_, parent=parent)]
        return [Entry(id=id_, parent=parent, message=_answer(message), key=str(message.get("id") or id_))]
    messages = _user_messages(message)
    ids = [*(f"{id_}/{number}" for number in range(1, len(messages))), id_]
    if not messages:
        return [Entry(id=id_, parent=parent)]
    links = zip(ids, [parent, *ids], messages, strict=False)
    return [Entry(id=own_id, parent=parent_id, message=one) for own_id, parent_id, one in links]


def _parts(message: Line, kind: str) -> list[Line]:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]


def _answer(message: Line) -> Message:
    calls = [
        tool_call(part.get("id"), part.get("name"), part.get("input")) for part in _parts(message, "tool_use")
    ]
    return answer_of(text_of(message), calls)


def _user_messages(message: Line) -> list[Message]:
    results = [
        result_of(part.get("tool_use_id"), text_of(part, "\n")) for part in _parts(message, "tool_result")
    ]
    text = CLAUDE_CODE.clean(text_of(message)).strip()
    is_from_user = bool(text) and not text.startswith(_PROGRAM_TEXTS)
    return [*results, *([{"role": "user", "content": text}] if is_from_user else [])]
