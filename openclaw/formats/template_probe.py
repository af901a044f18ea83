"""Conversations that use all features of a chat template, to detect whether a setting changes their ids."""

from __future__ import annotations

from typing import Any

from openclaw.errors import ClientError
from openclaw.formats.rendering import ChatFormat

_CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
_REQUEST: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read a.txt."},
]
_CONVERSATIONS: tuple[list[dict[str, Any]], ...] = (
    _REQUEST,
    [
        *_REQUEST,
        {"role": "assistant", "content": "Hm.", "reasoning_content": "It is a file.", "tool_calls": [_CALL]},
        {"role": "tool", "content": "42", "tool_call_id": "call_1", "name": "read"},
    ],
    [*_REQUEST, {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}],
)
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Reads a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]


def probe(chat_format: ChatFormat) -> list[list[int]]:
    """Returns the prompt ids [T] of each conversation, with and without tools and reasoning; [] for those that the
    template rejects."""
    rendered = []
    for messages in _CONVERSATIONS:
        for tools in (None, _TOOLS):
            for thinking in (True, False):
                try:
                    rendered.append(chat_format.render(messages, tools, thinking))
                except ClientError:
                    rendered.append([])
    return rendered
