"""Features of a user's message for the head: its embedding, its similarity to request and answer, the rules' vote and
their phrases about form."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openclaw.common.answer_form import count_words, greets, is_list, is_long, is_prose, is_very_short
from openclaw.common.wish_themes import THEMES, asked_themes, has_question, wish_themes
from openclaw.judge.rules.advice import wish_for_form
from openclaw.judge.rules.english import BY_TONE
from openclaw.judge.sentences.encoder import SIZE, in_devanagari, readable
from openclaw.judge.sentences.hindi import glossed
from openclaw.types import Vote

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from openclaw.judge.sentences.encoder import Encoder

    Row = npt.NDArray[np.float32]

_CHARACTERS = 200
"""Characters at the beginning of a request and of an answer that indicate their topic."""
_QUESTION, _CRY = tuple("?？؟"), ("!", "！")
_PAUSE = re.compile(r"\.{3}|…")
_PICTURE = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
_QUOTE = re.compile('["“„«「]')
_PAYLOAD = re.compile(r"[:：]\s*\S")
_WORD = re.compile(r"\w+")
_LENGTHS = (2, 5, 10, 20, 40)
_NUMBER = re.compile(r"\d+")
_SHORTEST_RUN, _LONGEST_RUN, _RUN_CHARACTERS = 2, 5, 300
"""Shortest and longest character n-grams, and characters of a message that they are taken from."""
_BUCKETS = 4096
"""Number of hash buckets of n-grams and words (the hashing trick, Weinberger 2009)."""
OF_WORDS = 2 * SIZE + _BUCKETS
"""Number of features about words, at the end; those before are about form and the rules' vote."""
_BY_RULE = (
    ("no clear sentiment", 0), ("both", 0), ("sarcasm", 0), (BY_TONE, -1), (BY_TONE, 1),
    ("a wish for another form", -1), ("praise, and a wish", -1),
    ("the same request again", -1), ("what was asked for again", -1), ("", 0), ("", -1), ("", 1),
)  # fmt: skip
"""Prefixes of the texts of the rules' votes, with their feature; the first match counts."""
_SIZE, _SIGNS, _PAIR, _RUNS = 2.0, 0.5, 20.0, 2.0
"""Scales of the feature groups, so that one L2 weight fits all."""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A user's message, its context, and the rules' vote; None: the rules were tuned on this line, so their vote and
    phrases would fit it too well."""

    text: str
    request: str
    answer: str
    rules: Vote | None


def features_of(remark: Remark, encoder: Encoder) -> Row:
    """Returns `[features]`, of the same length for every message."""
    import numpy as np

    text, request, answer = encoder.embeddings(
        [remark.text, remark.request[:_CHARACTERS], remark.answer[:_CHARACTERS]]
    )
    signs = (_SIGNS * value for value in _signs(remark))
    plain = np.array([*_rule(remark.rules), *signs, *_phrases(remark)], dtype=np.float32)
    near = np.array([text @ request, text @ answer], dtype=np.float32)
    row: Row = np.concatenate([plain, near, _SIZE * text, _PAIR * text * request, _RUNS * _runs(remark.text)])
    return row


def form_features_of(row: Row, remark: Remark, encoder: Encoder) -> Row:
    """Returns the features for the form that a message asks for, from those of `features_of`: they differ in the
    embedding of a Hindi message, whose known words are in English."""
    import numpy as np

    read = readable(remark.text)
    english = glossed(read, in_devanagari(remark.text))
    if english == read:
        return row
    text, request = encoder.embeddings([english, remark.request[:_CHARACTERS]])
    embedded: Row = np.concatenate([_SIZE * text, _PAIR * text * request])
    return np.concatenate([row[:-OF_WORDS], embedded, row[-_BUCKETS:]])


def _runs(text: str) -> Row:
    """Returns `[_BUCKETS]`, of norm 1: hashed n-grams and words, which cover slang and languages unknown to the
    embedding."""
    import numpy as np

    plain = _NUMBER.sub("0", " ".join(readable(text)[:_RUN_CHARACTERS].lower().split()))
    lengths = range(_SHORTEST_RUN, _LONGEST_RUN + 1)
    padded = f" {plain} "
    names = {padded[at : at + length] for length in lengths for at in range(len(padded) - length + 1)}
    names |= {f"word {word}" for word in _WORD.findall(plain)}
    counts: Row = np.zeros(_BUCKETS, dtype=np.float32)
    for name in names:
        bucket = zlib.crc32(name.encode())
        # a random sign keeps collisions in a bucket from always adding up
        counts[bucket % _BUCKETS] += 1 if bucket >> 31 else -1
    return counts / max(float(np.linalg.norm(counts)), 1.0)


def _rule(vote: Vote | None) -> list[float]:
    """Returns a one-hot encoding of the rule, or zeros."""
    row = [0.0] * len(_BY_RULE)
    if vote is not None:
        score = vote.score or 0
        fits = (
            at for at, (begins, sign) in enumerate(_BY_RULE) if sign == score and vote.text.startswith(begins)
        )
        row[next(fits)] = 1.0
    return row


def _phrases(remark: Remark) -> list[float]:
    """Returns features of the form that phrases in the message are about, or zeros."""
    if remark.rules is None:
        return [0.0] * (2 * len(THEMES) + 3)
    about, asked = wish_themes(remark.text), asked_themes(remark.text)
    asks = has_question(remark.text)
    wish = wish_for_form(remark.text, f"{remark.request}\n{remark.answer}")
    themes = [*(name in about for name in THEMES), *(name in asked for name in THEMES)]
    return [float(value) for value in (*themes, asks, bool(about) and not asks, wish != "")]


def _signs(remark: Remark) -> list[float]:
    """Returns features of the answer's form, and of the message's length and punctuation."""
    text, answer = remark.text.strip(), remark.answer.strip()
    words, length = set(_WORD.findall(text.lower())), count_words(text)
    of_answer = [
        is_long(answer), is_list(answer), is_prose(answer), is_very_short(answer), greets(answer),
        answer.endswith(_QUESTION),
    ]  # fmt: skip
    of_text = [
        text.endswith(_QUESTION), any(sign in text for sign in _QUESTION), text.endswith(_CRY),
        *(pattern.search(text) is not None for pattern in (_PAUSE, _PICTURE, _QUOTE, _PAYLOAD)), "\n" in text,
        *(length <= bound for bound in _LENGTHS),
    ]  # fmt: skip
    shared = [
        len(words & set(_WORD.findall(other.lower()[: 10 * _CHARACTERS]))) / max(len(words), 1)
        for other in (remark.request, answer)
    ]
    return [*map(float, of_answer), *map(float, of_text), *shared]
