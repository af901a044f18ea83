"""Converts between token ids and text with the fast tokenizer only (without transformers)."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer


class IncrementalText:
    """Text of a growing list of token ids; bytes of an incomplete character wait for the next token."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._context = 0
        self._done = 0
        self.text = ""

    def push(self, ids: list[int], last: bool = False) -> str:
        """Appends ids and returns the whole text; incomplete characters are omitted unless `last`."""
        self._ids.extend(ids)
        known = self._decode(self._ids[self._context : self._done])
        seen = self._decode(self._ids[self._context :])
        if len(seen) > len(known) and (last or not seen.endswith("\ufffd")):
            self.text += seen[len(known) :]
            self._context, self._done = self._done, len(self._ids)
        return self.text

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=self._skip)
        return text


class StopStrings:
    """Finds the first stop string in the text of one sequence, token by token."""

    def __init__(self, tokenizer: Tokenizer, stops: list[str], skip_special_tokens: bool) -> None:
        self._text = IncrementalText(tokenizer, skip_special_tokens)
        self._stops = stops
        self._longest = max(len(stop) for stop in stops)

    def push(self, token: int) -> str | None:
        """Returns the first stop string in the text including this token; None if there is none."""
        before = len(self._text.text)
        text = self._text.push([token])
        stop = earliest(text[max(0, before - self._longest + 1) :], self._stops)
        return stop[1] if stop else None


def earliest(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Returns position and value of the stop string that starts first in `text`."""
    hits = [(text.find(stop), stop) for stop in stops if stop in text]
    return min(hits, default=None)


def held_back(text: str, stops: list[str]) -> int:
    """Returns the number of characters at the end of `text` that may begin a stop string."""
    longest = max((len(stop) for stop in stops), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        tail = text[-size:]
        if any(stop.startswith(tail) for stop in stops):
            return size
    return 0


def load_tokenizer(folder: str) -> Tokenizer | None:
    """Returns the tokenizer of tokenizer.json; None if there is none (the engine then accepts only ids)."""
    path = Path(folder) / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.is_file() else None
