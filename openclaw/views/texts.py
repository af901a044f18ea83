"""Formats stored texts for display."""

from __future__ import annotations

from typing import Any

from openclaw.common.messages import LINE_BREAK, text_of, user_texts_in
from openclaw.common.visible import visible
from openclaw.types import Message

_PREVIEW = 120


def token_text(data: bytes) -> str:
    """Returns the text of a token for display; bytes of incomplete characters are shown as hexadecimal codes."""
    try:
        return visible(data.decode())
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02X}⟩" for byte in data)


def calls_of(message: Message) -> list[dict[str, str]]:
    """Returns the tool calls of a message as `{"name", "arguments"}`."""
    calls = []
    for call in message.get("tool_calls") or []:
        function = call.get("function", {}) if isinstance(call, dict) else {}
        arguments: Any = function.get("arguments")
        calls.append({"name": str(function.get("name", "")), "arguments": str(arguments or "")})
    return calls


def new_messages(messages: list[Message]) -> list[Message]:
    """Returns the messages after the last answer in a request."""
    answers = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
    return messages[answers[-1] + 1 :] if answers else messages


def shown_message(message: Message) -> dict[str, Any]:
    """Returns a message for display: `{"role", "content", "reasoning", "calls"}`."""
    return {
        "role": str(message.get("role", "")),
        "content": text_of(message, LINE_BREAK),
        "reasoning": str(message.get("reasoning_content") or ""),
        "calls": calls_of(message),
    }


def preview(messages: list[Message]) -> str:
    """Returns the first user message of a request on one line, shortened to 120 characters."""
    texts = user_texts_in(messages)
    line = " ".join((texts[0] if texts else "").split())
    return line if len(line) <= _PREVIEW else line[: _PREVIEW - 1] + "…"
