"""Extracts the hint from a complaint: the requested change, in the user's own words.

A bare rejection ("That is wrong. Try again.") has no hint: it does not describe a better answer.
"""

from __future__ import annotations

import re

from openclaw.judge.rules.advice import advice_for, advice_in, sentences_of
from openclaw.judge.rules.english import before_task, words_of
from openclaw.judge.rules.languages import language_of

_FEWEST_WORDS = 3
_FEWEST_SIGNS = 4
"""Fewest words, or Chinese or Japanese characters, of a hint."""
LEAST_BYTES = 10
"""Bytes; a hint of the judge must be longer (`openclaw.judge.hints`)."""
_BARE = re.compile(
    r"""
    (?:please|pls|no|nope|nah|sorry|hm+|well|oh|but|and|so|still|again|once\ more|now|just|then|could\ you|can\ you)
  | (?:that|this|it|which|the|your|my|you|i|is|'s|was|are|isn't|not|can't|cannot|be|looks?|seems?|think|believe|have)
  | (?:really|quite|all|totally|completely|simply|clearly|a|an|there|in|at|of|to|for|me|sure|must|some|any|made|make)
  | (?:wrong|incorrect|false|mistaken|mistakes?|errors?|off|right|correct|bad|terrible|awful|useless|nonsense)
  | (?:answer|reply|response|result|solution|number|one|work|steps?|calculation|sum|total|text|problem|exercise|it)
  | (?:check|recheck|try|retry|do|redo|solve|count|recount|calculate|compute|answer|over|differently|better|look|wtf)
  | (?:nein|das|ist|falsch|stimmt|nicht|nochmal|eso|esto|es|está|mal|incorrecto|otra|vez|pas|è)
  | (?:non|c'est|faux|est|sbagliato|não|isso|errado|nee|dat|fout|klopt|niet)
  | (?:nie|źle|нет|это|неверно|неправильно|опять|hayır|bu|yanlış)
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[^\W_][\w']*")
_THANKS = re.compile(r"^(?:thanks?|thank you|thx|ok|okay)\b[^,;:-]*$")


def correction_in(text: str, conversation: str = "") -> str:
    """Returns the sentences of a complaint that ask for a change, up to the next task; "" if there are none, because a
    complaint without advice teaches no better answer.

    The sentences stay one hint. Separate hints would each have a teacher, and a method that selects the hint whose
    teacher is nearest to the student would select the sentence that changes least ("That looks like AI."). A request
    of a word or two ("shorter") is completed to a sentence.
    """
    known = words_of(conversation)
    advice = advice_for(text, conversation)
    sentences = sentences_of(text)
    kept: list[str] = []
    for sentence in advice.before_another(sentences, conversation) if advice else sentences:
        advice_text, is_task = sentence, False
        if advice is None or advice.language == "en":
            about, is_task = before_task(sentence.replace("’", "'").lower(), known)
            advice_text = sentence[: len(about)].rstrip(" ,;:-") if is_task else sentence
        if advice_text and not _is_bare(advice_text.replace("’", "'").lower()):
            kept.append(advice_text)
        if is_task:
            break
    whole = " ".join(kept)
    if advice is None:
        return whole if _is_long_enough(whole) else ""
    if not any(map(advice.advises, kept)):
        return ""
    if len(whole.encode()) > LEAST_BYTES and _is_long_enough(whole):
        return whole
    return advice.as_sentence(whole)


def restated(comment: str, conversation: str) -> str:
    """Returns a hint for words that only name something that the answer lacks."""
    advice = advice_for(comment, conversation) or advice_in("en")
    return advice.as_sentence(comment) if advice else ""


def _is_bare(sentence: str) -> bool:
    """Returns whether every word only rejects, repeats a request, or thanks."""
    return bool(_THANKS.match(sentence)) or all(_BARE.fullmatch(word) for word in _WORD.findall(sentence))


def _is_long_enough(hint: str) -> bool:
    if language_of(hint) in ("zh", "ja"):
        return len(hint) >= _FEWEST_SIGNS
    return len(hint.split()) >= _FEWEST_WORDS
