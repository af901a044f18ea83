"""Detects long texts that occur verbatim in several sessions of a key: templates of a program, not feedback.

Keys are counted separately, so that one client cannot make another client's feedback count as a template.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from openclaw.common.messages import text_of
from openclaw.types import Message

SHORTEST = 200
"""Fewest characters of a template; people repeat shorter texts."""
SESSIONS = 3
"""Number of sessions from which a text counts as a template."""
REMEMBERED = 10_000
"""Most texts that are remembered; the least recently used one is dropped."""


class RepeatedTexts:
    """Counts the sessions of each long text in the user role, since the start of this process."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, set[str]] = OrderedDict()

    def without(self, key_name: str | None, session_id: str, next_state: Sequence[Message]) -> list[Message]:
        """Returns a next state without user messages that are templates, and counts its texts."""
        return [
            message
            for message in next_state
            if message["role"] != "user" or not self._is_repeated(key_name, session_id, text_of(message))
        ]

    def _is_repeated(self, key_name: str | None, session_id: str, text: str) -> bool:
        if len(text) < SHORTEST:
            return False
        text_of_key = f"{key_name or ''}\0{text}"
        digest = hashlib.blake2b(text_of_key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        sessions = self._sessions.setdefault(digest, set())
        self._sessions.move_to_end(digest)
        if len(self._sessions) > REMEMBERED:
            self._sessions.popitem(last=False)
        if len(sessions) < SESSIONS:
            sessions.add(session_id)
        return len(sessions) >= SESSIONS
