"""Which language a message is in, and what one in a language with a list of its own says about the answer.

A language that no list knows says something only by signs that all share.
"""

from __future__ import annotations

import functools
import re
import tomllib

from openclaw.judge.rules.wordings import FOLDER, GERMAN, SIGNS, SPANISH, Wordings

_WORD = re.compile(r"[^\W\d_]+(?:'\w+)?")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
_QUOTED = re.compile(r"[\"“„«][^\"“”»]*[\"“”»]")
_PAYLOAD = re.compile(r":\s*\S.{7,}|[\"“„«].{8,}")
_LATIN = re.compile(r"[a-zà-öø-ÿ]", re.IGNORECASE)
_TEXT_LENGTH = 4000
_SHORT_WORDS = 5
_TOPIC_LETTERS = 4
_NEW_FROM = 2
"""Words of at least so many letters, unknown to the conversation, that make a new topic."""
_LETTERS = {"de": re.compile("[äöß]"), "es": re.compile("[¿¡ñ]|[áíóú](?=n?\\b)"), "tr": re.compile("[ğşı]")}
"""Letters that speak for a language."""
_LISTS = {"de": GERMAN, "es": SPANISH}


def language_of(text: str, conversation: str = "") -> str:
    """The language whose words a message has most of, else that of the conversation; "other" for one that no list
    knows. English where nothing tells."""
    if text and not _LATIN.search(text[:_TEXT_LENGTH]) and _WORD.search(text[:_TEXT_LENGTH]):
        return "other"
    for read in (text, conversation):
        words = _WORD.findall(read[:_TEXT_LENGTH].lower().replace("’", "'"))
        counts = {name: sum(word in known for word in words) for name, known in _known_words().items()}
        for name, letters in _LETTERS.items():
            counts[name] += len(letters.findall(read[:_TEXT_LENGTH].lower()))
        most = max(counts.values())
        best = [name for name, count in counts.items() if count == most]
        if most and len(best) == 1:
            return best[0] if best[0] in ("en", *_LISTS) else "other"
    return "en"


def read_signs(text: str) -> tuple[int, str]:
    """(score, why) of the signs that all languages share."""
    read = text[:_TEXT_LENGTH].lower()
    good, bad = SIGNS["praise"].search(read), SIGNS["complaint"].search(read)
    if bool(good) != bool(bad):
        found = good or bad
        return (1 if good else -1), f"sign: {found.group() if found else ''}"
    if not bad and "?" not in read and len(_WORD.findall(read)) <= _SHORT_WORDS:
        thanks = SIGNS["short_thanks"].search(read)
        if thanks:
            return 1, f"praise: {thanks.group().strip()}"
    return 0, "no feedback"


def read_listed(text: str, language: str, conversation: str) -> tuple[int, str]:
    """(score, why) of a message in a language with a list."""
    wordings = _LISTS[language]
    sentences = [
        wordings["delight"].sub(" ☺ ", sentence) for sentence in _before_task(text, wordings, conversation)
    ]
    plain = [_QUOTED.sub(" ", sentence) for sentence in sentences]
    for name in ("complaint", "wish"):
        found = next((match.group() for part in plain if (match := wordings[name].search(part))), None)
        if found:
            return -1, f"complaint: {found.strip()}"
    score, why = read_signs(text)
    if score < 0:
        return score, why
    if any("☺" in part for part in plain):
        return 1, "praise"
    found = next((match.group() for part in plain if (match := wordings["praise"].search(part))), None)
    return (1, f"praise: {found.strip()}") if found else (score, why)


def _before_task(text: str, wordings: Wordings, conversation: str) -> list[str]:
    known = {*_WORD.findall(conversation.lower())}
    found = []
    for sentence in _SENTENCE.split(text[:_TEXT_LENGTH].lower().replace("’", "'")):
        bare = sentence.strip(" ,;:-")
        if _is_task(bare, wordings, known):
            break
        found.append(bare)
    return found


def _is_task(sentence: str, wordings: Wordings, known: set[str]) -> bool:
    asks = sentence.endswith("?") or wordings["asks"].search(sentence) is not None
    if not asks:
        return False
    payload = _PAYLOAD.search(sentence)
    if payload and not {*_WORD.findall(payload.group())} <= known:
        return True
    bare = wordings["wish"].sub(" ", wordings["complaint"].sub(" ", sentence))
    common = frozenset[str]().union(*_known_words().values())
    new = {
        word
        for word in _WORD.findall(bare)
        if len(word) >= _TOPIC_LETTERS and word not in known and word not in common
    }
    return len(new) >= (1 if sentence.endswith("?") else _NEW_FROM)


@functools.cache
def _known_words() -> dict[str, frozenset[str]]:
    words = tomllib.loads((FOLDER / "signs.toml").read_text("utf-8"))["words"]
    return {name: frozenset(text.split()) for name, text in words.items()}
