"""What is special about one client, a module each: noise in its messages, session ids, marks of side
turns.

A module gives a `Client`; `CLIENTS` is the list. Their rules never contradict: any client's request may be
given to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openclaw.sessions.clients.openclaw import OPENCLAW
from openclaw.sessions.clients.rules import Client

CLIENTS: tuple[Client, ...] = (OPENCLAW,)


def clean_text(text: str) -> str:
    """A user's or tool's text without what a client has put around it."""
    for client in CLIENTS:
        text = client.clean(text)
    return text.strip()


def named_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The session id in a client's own headers, fields or messages; None if it sends none."""
    for client in CLIENTS:
        found = client.session(headers, body)
        if found:
            return found
    return None


def is_side_turn(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these messages are a client's housekeeping, not a person's conversation."""
    return any(client.is_side(messages) for client in CLIENTS)
