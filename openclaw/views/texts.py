"""Stored texts as the page shows them."""

from __future__ import annotations

from typing import Any

from openclaw.common.messages import LINE_BREAK, said_in, text_of
from openclaw.common.visible import visible
from openclaw.types import Message

_PREVIEW = 120


def token_text(data: bytes) -> str:
    """Returns a token's text for display: blanks and line ends stay, incomplete characters are shown as bytes."""
    try:
        return visible(data.decode())
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02X}⟩" for byte in data)


def calls_of(message: Message) -> list[dict[str, str]]:
    """Returns tool calls as `{"name", "arguments"}`."""
    calls = []
    for call in message.get("tool_calls") or []:
        function = call.get("function", {}) if isinstance(call, dict) else {}
        arguments: Any = function.get("arguments")
        calls.append({"name": str(function.get("name", "")), "arguments": str(arguments or "")})
    return calls


def new_messages(messages: list[Message]) -> list[Message]:
    """Returns the new part of a request: the messages after the last answer in it."""
    answers = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
    return messages[answers[-1] + 1 :] if answers else messages


def shown_message(message: Message) -> dict[str, Any]:
    """Returns a message for the page: `{"role", "content", "reasoning", "calls"}`."""
    return {
        "role": str(message.get("role", "")),
        "content": text_of(message, LINE_BREAK),
        "reasoning": str(message.get("reasoning_content") or ""),
        "calls": calls_of(message),
    }


def preview(messages: list[Message]) -> str:
    """Returns the first words of the user in a request."""
    texts = said_in(messages)
    line = " ".join((texts[0] if texts else "").split())
    return line if len(line) <= _PREVIEW else line[: _PREVIEW - 1] + "…"
