"""What a request may have so much of that others would wait for it."""

from __future__ import annotations

from openclaw.common.messages import text_of
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import ChatRequest

PARTS_PER_MESSAGE = 4
"""Text parts, tool calls and tools that a request may have for each message that it may have."""
LARGE_HISTORY_CHARACTERS = 20_000
"""Of messages and tools as JSON: from here on a prompt is rendered in a thread, so that other streams continue."""
LARGE_PARTS = 200
"""Likewise, of text parts, tool calls and tools."""


def check_number(request: ChatRequest, most: int) -> None:
    """Raises ClientError for more than `most` messages, or PARTS_PER_MESSAGE times as many parts."""
    if len(request.messages) > most:
        message = f"messages: at most {most} in one request, not {len(request.messages)}"
        raise ClientError(message, "messages", "too_many_messages")
    if _parts(request) > PARTS_PER_MESSAGE * most:
        what = f"at most {PARTS_PER_MESSAGE * most} parts, tool calls and tools together in one request"
        raise ClientError(f"messages: {what}", "messages", "too_many_messages")


def is_large(request: ChatRequest) -> bool:
    """Whether comparing the request's history takes so long that it is done in a thread."""
    if _parts(request) >= LARGE_PARTS:
        return True
    return sum(len(text_of(message)) for message in request.messages) >= LARGE_HISTORY_CHARACTERS


def too_long(length: str, context_length: int) -> ClientError:
    """A prompt that leaves no room for an answer."""
    message = (
        f"the messages are {length} long; this model's context is {context_length} tokens, prompt and answer together: "
        "shorten the messages"
    )
    return ClientError(message, "messages", "context_length_exceeded")


def _parts(request: ChatRequest) -> int:
    """Text parts, tool calls and tools: each costs time, however short it is."""
    count = len(request.tools or ())
    for message in request.messages:
        content, calls = message.get("content"), message.get("tool_calls")
        count += len(content) if isinstance(content, list) else 0
        count += len(calls) if isinstance(calls, list) else 0
    return count
