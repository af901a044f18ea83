"""Reads conversations of Hermes 0.19: ~/.hermes/state.db, exports of `hermes sessions export`, and session files.

All contain messages in OpenAI's format: the database one in each row, an export one session in each object.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from openclaw.common.messages import text_of
from openclaw.errors import StoreError
from openclaw.store.history.past import (
    Line,
    PastSession,
    answer_of,
    chain,
    past_session,
    result_of,
    tool_call,
)
from openclaw.types import Message

_PARTS = "\0json:"
"""Prefix of a content in the database that is a JSON list of parts."""
_SIDE_SOURCES = ("cron", "tool", "subagent", "batch")
"""Values of `source` for sessions without a user."""


def is_hermes(value: object) -> bool:
    """Returns whether a JSON value is an exported session."""
    return isinstance(value, dict) and isinstance(value.get("messages"), list)


def read_hermes(value: Line, name: str) -> list[PastSession]:
    """Returns the session of an exported object as a list of one session.

    Args:
        name: id for a session without an id.
    """
    id_ = str(value.get("session_id") or value.get("id") or name)
    system = value.get("system_prompt")
    return [
        _session(
            id_, system, value.get("source"), (row for row in value["messages"] if isinstance(row, dict))
        )
    ]


def read_hermes_database(path: Path) -> list[PastSession]:
    """Returns all sessions of a state.db, which is opened read-only. Raises StoreError if it is not one."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            connection.row_factory = sqlite3.Row
            sessions = connection.execute(
                "SELECT id, source, system_prompt FROM sessions ORDER BY started_at"
            ).fetchall()
            query = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
            return [
                _session(
                    row["id"],
                    row["system_prompt"],
                    row["source"],
                    map(dict, connection.execute(query, (row["id"],))),
                )
                for row in sessions
            ]
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreError(f"{path} is not a Hermes database: {error}") from error


def _session(id_: str, system: object, source: object, rows: Iterable[Line]) -> PastSession:
    messages = [message for row in rows if (message := _message(row)) is not None]
    if isinstance(system, str) and system and not any(one["role"] == "system" for one in messages):
        messages.insert(0, {"role": "system", "content": system})
    session = past_session("hermes", id_, chain(messages))
    if source in _SIDE_SOURCES:
        session.left_out["side"] += len(session.turns)
        session.turns.clear()
    return session


def _message(row: Line) -> Message | None:
    """Returns the message of a row; None for messages that the user has undone and for unknown roles."""
    if row.get("active") == 0 and not row.get("compacted"):
        return None
    text = text_of({"content": _content(row.get("content"))})
    match row.get("role"):
        case "system" | "user" as role:
            return {"role": role, "content": text}
        case "tool":
            return result_of(row.get("tool_call_id"), text)
        case "assistant":
            return answer_of(text, _calls(row.get("tool_calls")))
        case _:
            return None


def _content(value: object) -> object:
    """Returns the content of a message: a text, or the list of parts that the database stores as JSON."""
    if isinstance(value, str) and value.startswith(_PARTS):
        try:
            return json.loads(value[len(_PARTS) :])
        except ValueError:
            return ""
    return value


def _calls(value: object) -> list[Message]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    calls = [call for call in (value if isinstance(value, list) else []) if isinstance(call, dict)]
    functions = [(call.get("id") or call.get("call_id"), call.get("function") or {}) for call in calls]
    return [tool_call(id_, function.get("name"), function.get("arguments")) for id_, function in functions]
