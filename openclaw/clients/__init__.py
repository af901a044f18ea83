"""What is special about one client, a module each: noise in its messages, session ids, marks of side
turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openclaw.clients import openclaw


def clean_text(text: str) -> str:
    """A user's or tool's text without what a client has put around it. Any client's text may be given."""
    return openclaw.clean_text(text)


def affinity_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The session id in a client's own headers or fields; None if it sends none."""
    return openclaw.affinity_session(headers, body)


def is_side_turn(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these messages are a client's housekeeping, not a person's conversation."""
    return openclaw.is_side_turn(messages)
