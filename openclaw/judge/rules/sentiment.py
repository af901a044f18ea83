"""What a person's next message says about the answer before it: complaint, praise, or nothing.

Only the part that can be about the answer is read: sentences before a new task. A word list (VADER) has
the last word, and only on sentences that speak of the answer, so that the text of a sad story is no verdict.
"""

from __future__ import annotations

import functools
import re

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from openclaw.judge.rules.topics import brings_new_topic, words_of
from openclaw.judge.rules.wordings import ENGLISH, ENGLISH_WORK

_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_CLAUSE = re.compile(r",\s+|;\s*|\s+-+\s+|\s+(?:but|and|so)\s+")
_DENIAL = re.compile(
    r"\b(?:no|not|never|nothing|none|neither|nobody|without|isn't|aren't|wasn't|weren't|don't|doesn't|didn't|can't|won't|cannot)\b"
)
"""A plain statement after an answer that denies something mostly corrects it."""
_REQUEST = re.compile(
    r"\b(?:give|tell|help|show|find|teach) (?:me|us)\b|\b(?:recommend|suggest|write|explain|list|compare)\b"
)
_DIGIT = re.compile(r"\d")
_ABOUT_ANSWER = re.compile(
    r"\b(?:you|your|you're|that|that's|this|it|it's|its|i|answer|reply|response|solution|result|text|comment|version|style)\b"
)
_TEXT_LENGTH = 4000
_SENTENCE_LENGTH = 400
"""Characters read of a message and of a sentence: a verdict comes early, and reading must stay fast."""
_FEW_WORDS = 3
_STORY_WORDS = 5
_POSITIVE, _NEGATIVE = 0.5, -0.4
"""VADER compound scores from which a sentence counts."""


def read_feedback(text: str, conversation: str = "") -> tuple[int, str]:
    """(score, why): 1 praise or approval, -1 complaint, correction, redo or change request, 0 neither.

    `conversation` is the request and the answer that `text` follows: its words are no new topic.
    """
    known = words_of(conversation)
    sentences = about_the_answer(text)
    clauses = [clause for sentence in sentences for clause in _CLAUSE.split(sentence)]
    on_topic = [part for part in dict.fromkeys(sentences + clauses) if not brings_new_topic(part, known)]
    for pattern, where in (
        (ENGLISH["complaint"], sentences),
        (ENGLISH_WORK["fault"], sentences),
        (ENGLISH["wish"], on_topic),
        (ENGLISH_WORK["slip"], on_topic),
        (ENGLISH_WORK["change"], on_topic),
    ):
        found = _first(pattern, where)
        if found:
            return -1, f"complaint: {found}"
    for pattern, where in (
        (ENGLISH["praise_first"], sentences),
        (ENGLISH["praise_inside"], on_topic),
        (ENGLISH_WORK["success"], sentences),
    ):
        found = _first(pattern, [_QUOTED.sub(" ", sentence) for sentence in where])
        if found:
            return 1, f"praise: {found}"
    denied = "" if "?" in text or _REQUEST.search(text.lower()) else _first(_DENIAL, sentences)
    if denied:
        return -1, f"complaint: {denied}"
    score, why = _sentiment(on_topic)
    return (score, why) if score or "?" in text else _sentiment(sentences)


def about_the_answer(text: str) -> list[str]:
    """The sentences, in lower case, up to the first that sets a new task."""
    plain = (
        text[:_TEXT_LENGTH].replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').lower()
    )
    plain = ENGLISH["innocent"].sub(" ", ENGLISH["delight"].sub(" thanks ", plain))
    found: list[str] = []
    for sentence in _SENTENCE.split(plain):
        before, is_task = before_task(sentence[:_SENTENCE_LENGTH].strip(" ,;:-"))
        if before:
            found.append(before)
        if is_task:
            break
    return found


def before_task(sentence: str) -> tuple[str, bool]:
    """What of the sentence comes before a new task, and whether there is one."""
    task = ENGLISH["new_task"].search(sentence)
    if task and not ENGLISH["complaint"].search(sentence):
        return sentence[: task.start()].strip(" ,;:-"), True
    if _is_story(sentence):
        return "", True
    return sentence, False


def _is_story(sentence: str) -> bool:
    """Numbers, and nobody is spoken to: the text of a problem."""
    if not _DIGIT.search(sentence) or len(sentence.split()) < _STORY_WORDS:
        return False
    return not (_ABOUT_ANSWER.search(sentence) or ENGLISH["complaint"].search(sentence))


def _first(pattern: re.Pattern[str], sentences: list[str]) -> str:
    matches = (pattern.search(sentence) for sentence in sentences)
    return next((match.group().strip() for match in matches if match), "")


def _sentiment(sentences: list[str]) -> tuple[int, str]:
    spoken = [
        _QUOTED.sub(" ", sentence)
        for sentence in sentences
        if _ABOUT_ANSWER.search(sentence) or len(sentence.split()) <= _FEW_WORDS
    ]
    if not spoken:
        return 0, "no feedback"
    compound = _analyzer().polarity_scores(" ".join(spoken))["compound"]
    if compound >= _POSITIVE:
        return 1, f"sentiment {compound:+.2f}"
    if compound <= _NEGATIVE:
        return -1, f"sentiment {compound:+.2f}"
    return 0, f"no clear sentiment ({compound:+.2f})"


@functools.cache
def _analyzer() -> SentimentIntensityAnalyzer:
    analyzer = SentimentIntensityAnalyzer()
    for word in ("please", "problem", "problems", "question", "no", "yes", "hand", "like"):
        analyzer.lexicon.pop(word, None)
    return analyzer
