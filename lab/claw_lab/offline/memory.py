"""The baseline without training: what people asked for is remembered and put into every prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openclaw.methods.hinted_prompt import with_hint
from openclaw.types import Message

KEPT = 4


class Memory:
    """The hints given last, oldest first, at most KEPT different ones; shared by everybody who talks."""

    def __init__(self) -> None:
        self.hints: list[str] = []

    def add(self, hints: Iterable[str]) -> None:
        """Remembers further hints; one that is known becomes the newest."""
        for hint in hints:
            self.hints = [*(known for known in self.hints if known != hint), hint][-KEPT:]

    def put_into(self, messages: Sequence[Message]) -> list[Message]:
        """The conversation with all that is remembered behind its last user message."""
        return with_hint(messages, " ".join(self.hints)) if self.hints else list(messages)
