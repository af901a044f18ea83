"""Reads ATIF, Harbor's trajectory format, versions 1.0 to 1.8.

A trajectory is a JSON document with the steps of a session, by system, user and agent. `writing_atif.py` writes them.
"""

from __future__ import annotations

import json

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

VERSION = "ATIF-v1.7"
"""Version that `writing_atif.py` writes."""


def is_atif(value: object) -> bool:
    """Returns whether a JSON value is a trajectory."""
    return (
        isinstance(value, dict)
        and str(value.get("schema_version")).startswith("ATIF-v1.")
        and isinstance(value.get("steps"), list)
    )


def read_atif(value: Line, name: str) -> list[PastSession]:
    """Returns the session of a trajectory, and those of its subagents.

    Args:
        name: id for a trajectory without an id.
    """
    id_ = str(value.get("session_id") or value.get("trajectory_id") or name)
    entries: list[Entry] = []
    for step in value["steps"]:
        if isinstance(step, dict):
            for message in _messages(step):
                parent = entries[-1].id if entries else None
                entry_id = str(len(entries))
                learn = not step.get("is_copied_context") and step.get("llm_call_count") != 0
                entries.append(Entry(id=entry_id, parent=parent, message=message, key=entry_id, learn=learn))
    sessions = [past_session("atif", id_, entries)]
    for number, sub in enumerate(value.get("subagent_trajectories") or []):
        if is_atif(sub):
            sessions += read_atif(sub | {"session_id": sub.get("trajectory_id") or f"{id_}-{number}"}, name)
    return sessions


def _messages(step: Line) -> list[Message]:
    text, source = _text(step.get("message")), step.get("source")
    results = (step.get("observation") or {}).get("results") or []
    if source != "agent":
        role = "system" if source == "system" else "user"
        messages: list[Message] = [{"role": role, "content": text}] if text else []
        return messages + [{"role": "user", "content": _text(one.get("content"))} for one in results]
    calls = [
        tool_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
        for call in step.get("tool_calls") or []
    ]
    call_ids = {call["id"] for call in calls}
    answer = answer_of(text, calls)
    return [answer, *(_result(one, call_ids) for one in results)]


def _result(result: Line, call_ids: set[str]) -> Message:
    """Returns the tool message of a result, or a user message if the result belongs to none of the calls."""
    text, id_ = _text(result.get("content")), result.get("source_call_id")
    return result_of(id_, text) if id_ in call_ids else {"role": "user", "content": text}


def _text(value: object) -> str:
    if value is None or isinstance(value, str | list):
        return text_of({"content": value})
    return json.dumps(value, ensure_ascii=False)
