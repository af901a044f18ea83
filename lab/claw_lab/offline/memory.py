"""The baseline without training: requests of people are stored and added to every prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openclaw.methods.hinted_prompt import with_hint
from openclaw.types import Message

KEPT = 4


class Memory:
    """The latest hints, oldest first, at most KEPT different ones; shared by all people."""

    def __init__(self) -> None:
        self.hints: list[str] = []

    def add(self, hints: Iterable[str]) -> None:
        """Stores further hints; a known one becomes the newest."""
        for hint in hints:
            self.hints = [*(known for known in self.hints if known != hint), hint][-KEPT:]

    def put_into(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the conversation with all stored hints after its last user message."""
        return with_hint(messages, " ".join(self.hints)) if self.hints else list(messages)
