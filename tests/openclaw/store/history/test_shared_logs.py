"""ChatGPT's export and ShareGPT files are histories; a byte order mark before a file's JSON is ignored."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

from openclaw.store.files.conversations import read_conversations
from openclaw.store.history.reading import read_histories


def node(id_: str, parent: str | None, role: str, text: str, **message: Any) -> dict[str, Any]:
    said = {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}, **message}
    return {"id": id_, "parent": parent, "children": [], "message": said}


CHATGPT = [
    {
        "title": "Sums",
        "conversation_id": "c1",
        "current_node": "e",
        "mapping": {
            "root": {"id": "root", "parent": None, "children": ["a"], "message": None},
            "a": node("a", "root", "user", "What is 2 + 2?"),
            "b": node("b", "a", "assistant", "5"),
            "t": node("t", "b", "assistant", "search()", recipient="browser"),
            "c": node("c", "t", "user", "That is wrong."),
            "d": node("d", "c", "assistant", "4"),
            "e": node("e", "a", "assistant", "four"),
        },
    }
]
SHAREGPT = [
    {
        "id": "s1",
        "system": "be kind",
        "conversations": [
            {"from": "human", "value": "What is 2 + 2?"},
            {"from": "gpt", "value": "5"},
            {"from": "human", "value": "That is wrong."},
            {"from": "gpt", "value": "4"},
        ],
    }
]


def written(folder: Path, value: object) -> Path:
    file = folder / "conversations.json"
    file.write_bytes(codecs.BOM_UTF8 + json.dumps(value).encode())
    return file


def test_a_chatgpt_export_is_imported_with_its_branches(tmp_path: Path) -> None:
    found = read_histories(written(tmp_path, CHATGPT))
    assert found.files == {"chatgpt": 1}
    (session,) = found.sessions
    turns = {turn.answer["content"]: turn for turn in session.turns}
    assert session.id == "c1" and turns.keys() == {"5", "4", "four"}
    assert turns["5"].next_state == [{"role": "user", "content": "That is wrong."}]
    assert [message["content"] for message in turns["4"].messages] == [
        "What is 2 + 2?",
        "5",
        "That is wrong.",
    ]


def test_a_sharegpt_file_is_imported_as_conversations(tmp_path: Path) -> None:
    found = read_histories(written(tmp_path, SHAREGPT))
    (session,) = found.sessions
    first, second = session.turns
    assert found.files == {"sharegpt": 1} and session.id == "s1"
    assert first.messages == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "What is 2 + 2?"},
    ]
    assert first.next_state == [{"role": "user", "content": "That is wrong."}] and second.next_state == []


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    talk = {"session_id": "s", "turns": [{"prompt": "hi", "response": "hello"}]}
    ((_, found),) = read_conversations(written(tmp_path, talk))
    assert found.session_id == "s"
