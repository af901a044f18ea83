"""Judges an answer by the user's next message in English: complaint, praise, or neither.

Only sentences before a new task are examined, because a new request is not about the previous answer. A sentiment
word list (VADER) is used last, and only on sentences about the answer, so that a sad story is not taken for a
complaint.
"""

from __future__ import annotations

import functools
import re

from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from openclaw.judge.rules.languages import read_signs
from openclaw.judge.rules.wordings import ENGLISH, ENGLISH_ASIDES, ENGLISH_REQUESTS, ENGLISH_WORK

BY_TONE = "sentiment"
"""Prefix of the reason of a vote based on sentiment words, not on a phrase."""
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_CLAUSE = re.compile(r",\s+|;\s*|\s+-+\s+|\s+(?:but|and|so)\s+")
_DENIAL = re.compile(
    r"\b(?:no|not|never|nothing|none|neither|nobody|without|isn't|aren't|wasn't|weren't|don't|doesn't|didn't|can't|won't|cannot)\b"
)
"""A statement that denies something about the answer is usually a correction."""
_DOUBT = re.compile(r"\?[?!]")
_TIE = re.compile(r"\b(?:that|this|it|its|it's|which|you|your|these|those|them|they)\b")
"""Words, besides the answer's own, that relate a denial to the answer."""
_TURN = re.compile(
    r"\b(?:but|except|however|though|although|yet|only|please|pls|could|can|would|next time|instead|needs?|should)\b"
)
"""Words that make the rest of a praising message a request."""
_TIE_LETTERS = 4
_REQUEST = re.compile(
    r"\b(?:give|tell|help|show|find|teach) (?:me|us)\b|\b(?:recommend|suggest|write|explain|list|compare)\b"
)
_NO_APOSTROPHE = re.compile(r"\b(is|are|was|does|did|do|ca|wo|have|has|could|would|should)nt\b")
_DIGIT = re.compile(r"\d")
_ABOUT_ANSWER = re.compile(
    r"\b(?:you|your|you're|that|that's|this|it|it's|its|i|answer|reply|response|solution|result|text|comment|version|style)\b"
)
_TEXT_LENGTH = 4000
_SENTENCE_LENGTH = 400
"""Most characters examined of a message and of a sentence: the verdict comes early, and matching must stay fast."""
_FEW_WORDS = 3
_STORY_WORDS = 5
_SHORT_MESSAGE = 8
"""Most words of a positive message that is taken to be about the answer."""
_POSITIVE, _NEGATIVE = 0.5, -0.4
"""VADER compound scores beyond which a sentence counts."""


def read_feedback(text: str, conversation: str = "") -> tuple[int, str]:
    """Returns (score, reason): 1 praise or approval, -1 complaint, correction, redo or change request, 0 neither.

    `conversation`: the request and the answer before `text`: their words are no new topic.
    """
    known = words_of(conversation)
    sentences = about_the_answer(text, known)
    clauses = [clause for sentence in sentences for clause in _CLAUSE.split(sentence)]
    on_topic = [part for part in dict.fromkeys(sentences + clauses) if not brings_new_topic(part, known)]
    if _DOUBT.search(text) and words_of(text) and words_of(text) <= known:
        return -1, "complaint: doubts words of the answer"
    mocked = _first(ENGLISH_ASIDES["sarcasm"], sentences)
    if mocked:
        return 0, f"sarcasm: {mocked}"
    praised = _praise(sentences, on_topic)
    complained, is_sure = _complaint(sentences, on_topic)
    if complained and praised and not (is_sure or _TURN.search(" ".join(sentences))):
        return 0, f"both: {praised}, {complained}"
    if complained:
        return -1, f"complaint: {complained}"
    score, why = read_signs(text)
    if score < 0:
        return score, why
    if praised:
        return 1, f"praise: {praised}"
    denied = "" if "?" in text or _REQUEST.search(text.lower()) else _denial(clauses, known)
    if denied:
        return -1, f"complaint: {denied}"
    return (score, why) if score else _by_words(sentences, on_topic)


def _by_words(sentences: list[str], on_topic: list[str]) -> tuple[int, str]:
    """Returns the sentiment of sentences on topic; for a short message off topic only if it is positive."""
    score, why = _sentiment(on_topic)
    if score or sum(len(sentence.split()) for sentence in sentences) > _SHORT_MESSAGE:
        return score, why
    other = _sentiment(sentences)
    return other if other[0] > 0 else (score, why)


def _complaint(sentences: list[str], on_topic: list[str]) -> tuple[str, bool]:
    """Returns the complaining words, and whether they decide regardless of the rest of the message."""
    sentences = [_QUOTED.sub(" ", sentence) for sentence in sentences]
    words = _first(ENGLISH["complaint"], sentences)
    if words:
        return words, True
    for pattern, where in (
        (ENGLISH_WORK["fault"], sentences),
        (ENGLISH["wish"], on_topic),
        (ENGLISH_WORK["slip"], on_topic),
        (ENGLISH_WORK["change"], on_topic),
    ):
        words = _first(pattern, where)
        if words:
            return words, False
    return "", False


def _praise(sentences: list[str], on_topic: list[str]) -> str:
    for pattern, where in (
        (ENGLISH["praise_first"], sentences),
        (ENGLISH["praise_inside"], on_topic),
        (ENGLISH_WORK["success"], sentences),
    ):
        words = _first(pattern, [_QUOTED.sub(" ", sentence) for sentence in where])
        if words:
            return words
    return ""


def _denial(clauses: list[str], known: frozenset[str]) -> str:
    """Returns a denial that refers to the answer or shares a word with the conversation."""
    before = ""
    for clause in clauses:
        match = _DENIAL.search(clause)
        if match and match.start() == 0:
            clause = f"{before} {clause}"
        before = clause
        if match:
            named = {word for word in words_of(clause) if len(word) >= _TIE_LETTERS and word != match.group()}
            if _TIE.search(clause) or named & known:
                return match.group()
    return ""


def about_the_answer(text: str, known: frozenset[str] = frozenset()) -> list[str]:
    """Returns the sentences in lower case, up to the first that sets a new task. known: the words of the
    conversation."""
    plain = (
        text[:_TEXT_LENGTH].replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').lower()
    )
    plain = _NO_APOSTROPHE.sub(r"\1n't", plain)
    plain = re.sub(r"\b(that|what)s\b", r"\1's", plain)
    plain = ENGLISH_ASIDES["innocent"].sub(" ", ENGLISH_ASIDES["delight"].sub(" thanks ", plain))
    about: list[str] = []
    for sentence in _SENTENCE.split(plain):
        if about and is_new_request(f"{sentence} {' '.join(about)}", known):
            break
        before, is_task = before_task(sentence[:_SENTENCE_LENGTH].strip(" ,;:-"), known)
        if before:
            about.append(before)
        if is_task:
            break
    return about


def before_task(sentence: str, known: frozenset[str] = frozenset()) -> tuple[str, bool]:
    """Returns the part of a sentence before a new task, and whether there is a new task."""
    if is_new_request(sentence, known):
        return "", True
    task = ENGLISH["new_task"].search(sentence)
    if task and not ENGLISH["complaint"].search(sentence):
        return sentence[: task.start()].strip(" ,;:-"), True
    if _is_story(sentence):
        return "", True
    return sentence, False


def _is_story(sentence: str) -> bool:
    """Returns whether a sentence has numbers but no address to a person, so that it is the text of a problem."""
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
        return 1, f"{BY_TONE} {compound:+.2f}"
    if compound <= _NEGATIVE and not any(map(ENGLISH_REQUESTS["asks"].search, spoken)):
        return -1, f"{BY_TONE} {compound:+.2f}"
    return 0, f"no clear sentiment ({compound:+.2f})"


@functools.cache
def _analyzer() -> SentimentIntensityAnalyzer:
    analyzer = SentimentIntensityAnalyzer()
    for word in ("please", "problem", "problems", "question", "no", "yes", "hand", "like"):
        analyzer.lexicon.pop(word, None)
    return analyzer


_WORD = re.compile(r"[^\W\d_]{2,}(?:'\w+)?")
_ABOUT_FORM = ("format", "manner", "bad_manner", "prose", "steps", "change", "answer")
"""Sections of the wordings with words about the form of answers."""
_NEW_FROM = 2
"""Number of unknown words that make a new topic; for a question without references one is enough, if it has
`_TOPIC_LETTERS`."""
_TOPIC_LETTERS = 4
_PAYLOAD = re.compile(r":\s*(\S.{3,})|\"(.{8,})")
"""A text to work on, after a colon or in quotation marks."""

GENERAL = frozenset(
    re.findall(
        r"\S+",
        """
    a about actually add after again all almost also always am an and another answer answer's
    answers any anymore anything are as ask asked at average back be because been before being best
    better between bit bold both bullet bullets but by calculate calculated calculation can can't
    cannot check class clear come computer correct could detail detailed details did didn't
    different do does doesn't doing don't done down each else end enough even ever every everything
    example except explain extra far feel few fewer find first follow for forget forgot format
    formatted formatting friend from full get gets getting give go going good got grade great had
    hand happy hard has have haven't having he hello help her here hey hi him his homework how human
    i idea if in include instead into is isn't it its just keep kid kids kind know label last later
    least leave less let letter letters like likes line lines list lists little long longer look
    looks lot machine made make makes many mark markdown math maybe me mean means message might mind
    missing more most much must my natural naturally need needed needs never new next nice no normal
    not nothing notice now number numbers of off ok okay on once one only or order other others our
    out over page paragraph paragraphs part parts people person place plain please pls point points
    possible prefer prose put question questions quite rather read reading reads really reason
    reasoning redo remove reply result results right robot same say saying says school second see
    seem seems sense sentence sentences she short shorter should show simple since single skip so
    solution solve solved some somehow someone something sorry sound sounds speak start step steps
    still stop student stuff style such sum sure take talk tax teacher teacher's tell text than that
    the their them then there these they thing things think third this those though thought through
    time times to together told tone too total try turn two type understand until up us use used
    using usual very want wanted wants was way we well were what when where which while who whoever
    whole why will with without word words work working works would write writes writing written
    wrong wrote yes yet you your
    """,
    )
)


def brings_new_topic(sentence: str, known: frozenset[str]) -> bool:
    """Returns whether the sentence has words outside `known` (see `words_of`) and outside the vocabulary about
    answers."""
    return len(new_words(sentence, known)) >= _NEW_FROM


def new_words(sentence: str, known: frozenset[str]) -> frozenset[str]:
    """Returns those words."""
    bare = _form_words().sub(" ", sentence)
    return frozenset(word for word in words_of(bare) if word not in known and word not in GENERAL)


def words_of(text: str) -> frozenset[str]:
    """Returns the words in lower case, including forms with an apostrophe."""
    return frozenset(_WORD.findall(text.lower()))


@functools.cache
def _form_words() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(ENGLISH.parts[name] for name in _ABOUT_FORM)})\b")


def is_new_request(sentence: str, known: frozenset[str]) -> bool:
    """Returns whether a sentence in lower case asks for something new and does not mention the answer.

    known: the words of the conversation so far."""
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
