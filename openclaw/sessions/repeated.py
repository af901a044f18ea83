"""Long texts that come word for word in several sessions: a program's template, and no person's judgement."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from openclaw.common.messages import text_of
from openclaw.types import Message

SHORTEST = 200
"""Characters; people repeat short remarks."""
SESSIONS = 3
"""The session in which a text is recognised as repeated, the first ones included."""
REMEMBERED = 10_000
"""Texts of which the sessions are known, the newest."""


class RepeatedTexts:
    """Sessions by their long texts in the user role, since the start of this process."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, set[str]] = OrderedDict()

    def without(self, session_id: str, next_state: Sequence[Message]) -> list[Message]:
        """Returns the messages after an answer of a session, without texts that followed others word for word."""
        return [
            message
            for message in next_state
            if message["role"] != "user" or not self._is_repeated(session_id, text_of(message))
        ]

    def _is_repeated(self, session_id: str, text: str) -> bool:
        if len(text) < SHORTEST:
            return False
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        sessions = self._sessions.setdefault(digest, set())
        self._sessions.move_to_end(digest)
        if len(self._sessions) > REMEMBERED:
            self._sessions.popitem(last=False)
        if len(sessions) < SESSIONS:
            sessions.add(session_id)
        return len(sessions) >= SESSIONS
