"""Session logs in the formats of the programs, including lines that are not messages."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def write_lines(file: Path, lines: list[Json]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def openclaw_lines(*messages: Json, session: str = "oc-1") -> list[Json]:
    """Returns lines of session format 3: a header, a model, then a chain of messages."""
    stamp = "2026-11-20T08:00:00.000Z"
    lines: list[Json] = [
        {"type": "session", "version": 3, "id": session, "timestamp": stamp, "cwd": "/home/ann/work"},
        {
            "type": "model_change",
            "id": "m0",
            "parentId": None,
            "timestamp": stamp,
            "provider": "x",
            "modelId": "y",
        },
    ]
    for number, message in enumerate(messages):
        own = {"id": f"e{number}", "parentId": f"e{number - 1}" if number else "m0", "timestamp": stamp}
        inner = message if message.get("type") == "compaction" else {"type": "message", "message": message}
        lines.append({**own, **inner})
    return lines


def openclaw_said(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": f"[Fri 2026-11-20 08:00 UTC] {text}"}]}


def openclaw_answered(text: str, call: tuple[str, Json] | None = None, **more: object) -> Json:
    parts: list[Json] = [{"type": "thinking", "thinking": "hm"}]
    parts += [{"type": "text", "text": text}] if text else []
    if call:
        parts.append({"type": "toolCall", "id": f"call_{call[0]}", "name": call[0], "arguments": call[1]})
    return {"role": "assistant", "content": parts, "stopReason": "toolUse" if call else "stop", **more}


def openclaw_returned(tool: str, text: str) -> Json:
    content = [{"type": "text", "text": text}]
    return {
        "role": "toolResult",
        "toolCallId": f"call_{tool}",
        "toolName": tool,
        "content": content,
        "isError": False,
    }


class ClaudeLog:
    """Lines of a Claude Code session; each refers to the previous one unless it names another."""

    def __init__(self, session: str = "cc-1") -> None:
        self.lines: list[Json] = [{"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}]
        self._session, self._last = session, None

    def add(self, kind: str, message: Json | None, parent: str | None = None, **more: object) -> str:
        own = f"u{len(self.lines)}"
        line = {
            "parentUuid": parent or self._last, "isSidechain": False, "userType": "external", "cwd": "/w",
            "sessionId": self._session, "version": "2.1.197", "type": kind, "uuid": own,
            "timestamp": "2026-11-20T08:00:00.000Z",
        }  # fmt: skip
        self.lines.append(line | ({"message": message} if message is not None else {}) | more)
        self._last = own
        return own

    def says(self, text: str, **more: Any) -> str:
        return self.add("user", {"role": "user", "content": text}, **more)

    def answers(self, id_: str, *parts: Json, **more: Any) -> str:
        message = {"id": id_, "type": "message", "role": "assistant", "model": "m", "content": list(parts)}
        return self.add("assistant", message, **more)

    def returns(self, id_: str, text: str, **more: Any) -> str:
        part = {"type": "tool_result", "tool_use_id": id_, "content": [{"type": "text", "text": text}]}
        return self.add("user", {"role": "user", "content": [part]}, **more)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def use(id_: str, name: str, **arguments: object) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def hermes_database(file: Path, *rows: tuple[str, str | None, str | None, str | None, int]) -> Path:
    """Writes a state.db of Hermes 0.19 (the columns that are read, and some others) with one session and one cron
    session."""
    with sqlite3.connect(file) as connection:
        connection.executescript(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, system_prompt TEXT,"
            " started_at REAL NOT NULL);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,"
            " content TEXT, tool_call_id TEXT, tool_calls TEXT, timestamp REAL NOT NULL, active INTEGER NOT NULL"
            " DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0);"
        )
        connection.execute("INSERT INTO sessions VALUES ('h-1', 'cli', 'm', 'You are Hermes.', 1.0)")
        connection.execute("INSERT INTO sessions VALUES ('h-2', 'cron', 'm', NULL, 2.0)")
        query = (
            "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, active, timestamp)"
        )
        connection.executemany(f"{query} VALUES ('h-1', ?, ?, ?, ?, ?, 1.0)", rows)
        for role, content in (("user", "Report."), ("assistant", "All is well."), ("user", "Report.")):
            connection.execute(f"{query} VALUES ('h-2', ?, ?, NULL, NULL, 1, 2.0)", (role, content))
    connection.close()
    return file
