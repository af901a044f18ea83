"""Features of a question for the learned judge: the rules' score, words and characters, words shared with the answer."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise

from openclaw.common.messages import last_said
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules

BUCKETS = 1 << 18
"""Numbers that features are hashed to (the hashing trick, Weinberger 2009)."""
END_CHARACTERS = 400
"""Characters that are read at the beginning and at the end of a text. The middle of a log does not help a classifier of
words."""
SIGNS = 4
"""Length of the runs of characters that count, so that word forms and languages without blanks are seen."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?|[^\w\s]")
_NUMBER = re.compile(r"\d+")

Features = dict[int, float]
"""Values by bucket; the squares of those of words sum up to 1."""


def features_of(question: JudgeQuestion) -> tuple[int, Features]:
    """The score that the rules give, and the features."""
    vote = vote_by_rules(question)
    said = question.next_text
    text = said if len(said) <= 2 * END_CHARACTERS else f"{said[:END_CHARACTERS]}\n{said[-END_CHARACTERS:]}"
    names = {f"{question.role} {name}" for name in _of_text(_NUMBER.sub("0", text.lower()))}
    share = 1 / math.sqrt(max(len(names), 1))
    found: Features = {}
    for name in names:
        bucket = _bucket(name)
        found[bucket] = found.get(bucket, 0.0) + share
    for name in (f"rule {vote.text}", *_of_place(question, said)):
        found[_bucket(f"{question.role} {name}")] = 1.0
    return int(vote.score or 0), found


def _of_text(text: str) -> Iterator[str]:
    words = _WORD.findall(text)
    yield from (f"word {word}" for word in words)
    yield from (f"pair {one} {two}" for one, two in pairwise(words))
    if words:
        yield f"first {words[0]}"
    close = " ".join(words)
    yield from (f"signs {close[at : at + SIGNS]}" for at in range(len(close) - SIGNS + 1))


def _of_place(question: JudgeQuestion, said: str) -> Iterator[str]:
    """Yields features of a message: its length, its end, and the share of words from the request and from the answer."""
    asked = last_said(question.messages)
    words = _words(said)
    yield f"length {len(words).bit_length()}"
    yield f"shared with the request {_tenths(words, _words(asked))}"
    yield f"shared with the answer {_tenths(words, _words(question.response))}"
    for name, text in (("next state", said), ("answer", question.response)):
        end = text.rstrip()[-1:]
        yield f"end of the {name} {end if end and not end.isalnum() else 'word'}"


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text[: 4 * END_CHARACTERS].lower()))


def _tenths(words: set[str], others: set[str]) -> int:
    return round(5 * len(words & others) / len(words)) if words else 0


def _bucket(name: str) -> int:
    return zlib.crc32(name.encode()) % BUCKETS
