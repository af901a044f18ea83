"""Is a sentence a new request? What it asks for and denies is then about the task, not about the answer before it."""

from __future__ import annotations

import re

from openclaw.judge.rules.topics import new_words, words_of
from openclaw.judge.rules.wordings import ENGLISH_REQUESTS

_PAYLOAD = re.compile(r":\s*(\S.{3,})|\"(.{8,})")
"""A text to work on, behind a colon or in quotation marks."""


_NEW_FROM = 2
"""New words that make a topic; of a question that refers to nothing one is enough, if it has so many letters."""
_TOPIC_LETTERS = 4


def is_new_request(sentence: str, known: frozenset[str]) -> bool:
    """Whether a sentence in lower case asks for something that the conversation, whose words are `known`, was not
    about, and says nothing about the answer."""
    if ENGLISH_REQUESTS["about_answer"].search(sentence) or not ENGLISH_REQUESTS["asks"].search(sentence):
        return False
    payload = _PAYLOAD.search(sentence.lstrip(" ,;"))
    if payload and not (words_of(payload.group()) or {payload.group()}) <= known:
        return True
    new = new_words(sentence, known)
    refers = ENGLISH_REQUESTS["refers"].search(sentence)
    if refers or not ENGLISH_REQUESTS["wants_to_know"].search(sentence):
        return len(new) >= _NEW_FROM
    return any(len(word) >= _TOPIC_LETTERS for word in new)
