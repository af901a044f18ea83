"""All clients that are known, and their rules together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from openclaw.clients.claude_code import CLAUDE_CODE
from openclaw.clients.client import Client
from openclaw.clients.codex import CODEX
from openclaw.clients.continue_dev import CONTINUE
from openclaw.clients.hermes import HERMES
from openclaw.clients.litellm import LITELLM
from openclaw.clients.open_webui import OPEN_WEBUI
from openclaw.clients.openai import OPENAI
from openclaw.clients.openclaw_agent import OPENCLAW
from openclaw.clients.opencode import OPENCODE

CLIENTS: tuple[Client, ...] = (
    OPENCLAW, CLAUDE_CODE, CODEX, HERMES, OPENCODE, OPENAI, LITELLM, CONTINUE, OPEN_WEBUI,
)  # fmt: skip


def clean_text(text: str) -> str:
    """A user's or tool's text without what a client has put around it."""
    for client in CLIENTS:
        text = client.clean(text)
    return text.strip()


def named_session(headers: Mapping[str, str], body: Mapping[str, object]) -> str | None:
    """The session id in a client's own headers, fields or messages; None if it sends none."""
    for client in CLIENTS:
        found = client.session(headers, body)
        if found:
            return found
    return None


def is_side_turn(
    messages: Sequence[Mapping[str, Any]],
    headers: Mapping[str, str] = MappingProxyType({}),
    has_tools: bool = True,
) -> bool:
    """Whether a request with these messages and headers (lower case) is a client's housekeeping, not a person's
    conversation."""
    return any(client.is_side(messages, headers, has_tools) for client in CLIENTS)
