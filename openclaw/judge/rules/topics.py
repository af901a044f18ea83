"""Whether a sentence brings up a new topic, asks for something new, or refers to the answer before it. What a new request
asks for and denies is about the task, not about the answer."""

from __future__ import annotations

import functools
import re

from openclaw.judge.rules.wordings import ENGLISH, ENGLISH_REQUESTS

_WORD = re.compile(r"[^\W\d_]{2,}(?:'\w+)?")
_ABOUT_FORM = ("format", "manner", "bad_manner", "prose", "steps", "change", "answer")
"""Parts of the wordings that are words about the form of answers."""
_NEW_FROM = 2
"""Words that neither the conversation nor talk about answers in general has, from which a sentence has a
new topic; of a question that refers to nothing one is enough, if it has `_TOPIC_LETTERS`."""
_TOPIC_LETTERS = 4
_PAYLOAD = re.compile(r":\s*(\S.{3,})|\"(.{8,})")
"""A text to work on, behind a colon or in quotation marks."""

_GENERAL = frozenset(
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
    """Whether the sentence has words from neither `known` (see `words_of`) nor the talk about answers in
    general."""
    return len(new_words(sentence, known)) >= _NEW_FROM


def new_words(sentence: str, known: frozenset[str]) -> frozenset[str]:
    """Its words that neither `known` nor the talk about answers in general has."""
    bare = _form_words().sub(" ", sentence)
    return frozenset(word for word in words_of(bare) if word not in known and word not in _GENERAL)


def words_of(text: str) -> frozenset[str]:
    """Lower-case words, apostrophe forms included."""
    return frozenset(_WORD.findall(text.lower()))


@functools.cache
def _form_words() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(ENGLISH.parts[name] for name in _ABOUT_FORM)})\b")


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
