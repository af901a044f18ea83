"""Parser for answers to text prompts (`/v1/completions`): text as sampled, neither stripped nor parsed."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from openclaw.formats.deltas import Delta, TextDelta
from openclaw.formats.tokenizer import Tokenizer


class RawText:
    """Decodes ids to text, up to the first stop id; see `AnswerParser`."""

    def __init__(self, tokenizer: Tokenizer, stop: Iterable[int]) -> None:
        self._bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ended = False
        self.stop_ids = frozenset(stop)

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Does nothing: the prompt does not affect how text is decoded."""

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Returns the text of these ids, without an incomplete character at its end."""
        data = b""
        for token in ids:
            self._ended = self._ended or token in self.stop_ids
            data += b"" if self._ended else self._bytes(token)
        return _delta(self._decoder.decode(data))

    def finish(self) -> list[Delta]:
        """Returns U+FFFD if the answer ends with an incomplete character, else []."""
        return _delta(self._decoder.decode(b"", final=True))

    def reasoning_tokens(self) -> int:
        """Returns 0: reasoning is not parsed."""
        return 0


def _delta(text: str) -> list[Delta]:
    return [TextDelta("content", text)] if text else []
