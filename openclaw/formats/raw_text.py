"""The answer to a plain prompt: text as sampled, not trimmed or parsed."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from openclaw.formats.deltas import Delta, TextDelta
from openclaw.formats.tokenizer import Tokenizer


class RawText:
    """Decodes ids to text up to the first end token."""

    def __init__(self, tokenizer: Tokenizer, stop: Iterable[int]) -> None:
        self._bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._over = False
        self.stop_ids = frozenset(stop)

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Does nothing: the prompt does not affect how text is decoded."""

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        data = b""
        for token in ids:
            self._over = self._over or token in self.stop_ids
            data += b"" if self._over else self._bytes(token)
        return _delta(self._decoder.decode(data))

    def finish(self) -> list[Delta]:
        return _delta(self._decoder.decode(b"", final=True))

    def reasoning_tokens(self) -> int:
        """Returns 0: nothing is parsed."""
        return 0


def _delta(text: str) -> list[Delta]:
    return [TextDelta("content", text)] if text else []
