"""Prompts rendered without carrying every id about: a text's ids pass through the renderer as one entry.

A renderer notes for each id which message it is from, in Python; for a long text that costs as much as reading it.
Fit for renderers that only string together what the tokenizer gives, and never look at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openclaw.formats.tokenizer import Tokenizer


class TextPiece(int):
    """Stands in a list of ids for `ids` [T]; as a number it is no id."""

    ids: list[int]


class PieceTokenizer:
    """A tokenizer whose every text is one TextPiece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, *args: Any, **kwargs: Any) -> list[int]:
        ids = self._tokenizer.encode(text)
        if not ids:
            return []
        piece = TextPiece(-1)
        piece.ids = ids
        return [piece]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def spelled_out(entries: Iterable[int]) -> list[int]:
    """Ids [T] of entries some of which are TextPieces."""
    ids: list[int] = []
    for entry in entries:
        if type(entry) is TextPiece:
            ids += entry.ids
        else:
            ids.append(entry)
    return ids
