"""Reads the text of chat messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LINE_BREAK = "\n"


def text_of(message: Mapping[str, object], between: str = "") -> str:
    """Returns the text of a message whose content is a string, null, or a list of parts; parts without text are
    skipped.

    Args:
        between: separator of the parts. The default is that of chat templates; prompts, and texts that are compared
            with them, use it. Judges pass LINE_BREAK, which keeps the words of two parts apart.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return between.join(text for text in texts if isinstance(text, str))


def user_texts_in(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns the texts of the user's messages, oldest first."""
    return [text_of(message, LINE_BREAK) for message in messages if message.get("role") == "user"]


def last_user_text(messages: Sequence[Mapping[str, object]]) -> str:
    """Returns the text of the user's newest message; "" if there is none."""
    newest = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    return text_of(newest, LINE_BREAK) if newest else ""


def content_of(parts: Sequence[str | dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Returns message content with these texts and pictures: a list of parts unless there is only one text."""
    texts = [part for part in parts if isinstance(part, str)]
    if len(parts) > 1 or not texts:
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts] or ""
    return texts[0]


def messages_in(body: Mapping[str, object]) -> list[dict[str, Any]]:
    """Returns the messages of an unvalidated request body."""
    messages = body.get("messages")
    return [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
