"""A reply of a model, and measures of texts: words, diversity, similarity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import Any

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_OPENING = re.compile(r"\w{1,20}|[^\w\s]")
_SENTENCE_END = re.compile(r"[.!?…。！？]+(?=\s|$)|[。！？]")
OPENING = 30
"""Number of first words in which diversity is measured, so that long replies do not count as more diverse."""
COMPARED = 80
"""Number of first words of a text that are compared with another text."""
PIECE, LEAST, REPEATED = 8, 64, 0.5
"""A reply of at least `LEAST` characters repeats itself if more than the share `REPEATED` of its substrings of `PIECE`
characters are duplicates."""


@dataclass(frozen=True)
class Reply:
    """A reply of a model.

    Attributes:
        ended: whether it was not truncated by the token limit.
        log_prob: mean over its tokens, nats; None if unknown.
        entropy: mean over its tokens, nats; None if unknown.
    """

    text: str
    ended: bool = True
    log_prob: float | None = None
    entropy: float | None = None

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Reply:
        """Returns the reply from the fields of `as_dict`."""
        return cls(str(fields["text"]), bool(fields["ended"]), fields.get("log_prob"), fields.get("entropy"))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def word_count(text: str) -> int:
    """Returns the number of words; two Chinese or Japanese characters count as one word."""
    characters = len(_CJK.findall(text))
    return len(_CJK.sub(" ", text).split()) + (characters + 1) // 2


def sentence_count(text: str) -> int:
    """Returns the number of sentences, at least 1 for a text that is not empty; the point in 3.5 ends no sentence."""
    return max(len(_SENTENCE_END.findall(text.strip())), 1 if text.strip() else 0)


def opening(text: str) -> str:
    """Returns the first word (at most 20 characters, lower case) or punctuation mark of a text; "" if it is empty."""
    first = _OPENING.search(text)
    return "" if first is None else first[0].lower()


def repeats_itself(text: str) -> bool:
    """Returns whether more than half of the substrings of 8 characters in a text are duplicates."""
    pieces = [text[at : at + PIECE] for at in range(len(text) - PIECE + 1)]
    return len(text) >= LEAST and 1 - len(set(pieces)) / len(pieces) > REPEATED


def distinct_2(texts: Sequence[str]) -> float | None:
    """Returns distinct bigrams divided by bigrams in the first words of texts (Li et al. 2016, arXiv 1510.03055).

    None if there are no bigrams.
    """
    pairs = [pair for text in texts for pair in _pairs(_tokens(text)[:OPENING])]
    return len(set(pairs)) / len(pairs) if pairs else None


def rouge_l(one: str, other: str) -> float:
    """Returns ROUGE-L, the F1 of the longest common subsequence of words (Lin 2004), 0 to 1; 1 for two empty texts."""
    a, b = _tokens(one)[:COMPARED], _tokens(other)[:COMPARED]
    if a == b:
        return 1.0
    common = _common(a, b)
    return 2 * common / (len(a) + len(b))


def self_rouge_l(texts: Sequence[str]) -> float | None:
    """Returns the mean ROUGE-L over pairs of texts: the similarity of answers to different questions.

    None for fewer than two texts.
    """
    similarities = [rouge_l(one, other) for one, other in combinations(texts, 2)]
    return sum(similarities) / len(similarities) if similarities else None


def _tokens(text: str) -> list[str]:
    return re.findall(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+", text.lower())


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    return list(pairwise(words))


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for at, other in enumerate(b, 1):
            before, row[at] = row[at], before + 1 if word == other else max(row[at], row[at - 1])
    return row[-1]
