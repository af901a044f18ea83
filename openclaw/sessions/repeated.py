"""Detects long texts that occur verbatim in several sessions of a key: templates of a program, not feedback of a
person. Each key is counted separately: otherwise one key could make the feedback of another count as a template."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from openclaw.common.messages import text_of
from openclaw.types import Message

SHORTEST = 200
"""Fewest characters; people repeat short remarks."""
SESSIONS = 3
"""Number of sessions after which a text counts as repeated."""
REMEMBERED = 10_000
"""Most remembered texts, newest first."""


class RepeatedTexts:
    """Sessions of long texts in the user role, since the start of this process."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, set[str]] = OrderedDict()

    def without(self, key_name: str | None, session_id: str, next_state: Sequence[Message]) -> list[Message]:
        """Returns the messages after an answer of a key's session, without repeated texts."""
        return [
            message
            for message in next_state
            if message["role"] != "user" or not self._is_repeated(key_name, session_id, text_of(message))
        ]

    def _is_repeated(self, key_name: str | None, session_id: str, text: str) -> bool:
        if len(text) < SHORTEST:
            return False
        whose = f"{key_name or ''}\0{text}"
        digest = hashlib.blake2b(whose.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        sessions = self._sessions.setdefault(digest, set())
        self._sessions.move_to_end(digest)
        if len(self._sessions) > REMEMBERED:
            self._sessions.popitem(last=False)
        if len(sessions) < SESSIONS:
            sessions.add(session_id)
        return len(sessions) >= SESSIONS
