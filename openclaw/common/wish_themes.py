"""Detects which aspects of an answer's form a text is about: layout, length or tone; in the languages of the rules
judge.

A complaint that only repeats what its own request asked for ("I asked for a list") is about that request. This is
detected by aspect, not by words: "bullet points" and "numbered list" are the same. Requests need a phrase ("as a
list, please"), because lists, tables and short things are also topics of requests; in complaints, a word is enough.
Text without a match in `wish_themes.toml` has no theme.
"""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Literal

Theme = Literal["layout", "length", "tone"]
THEMES: tuple[Theme, ...] = ("layout", "length", "tone")

_PHRASES = Path(__file__).with_suffix(".toml")
_END = 1000
"""Characters at each end of a text that are examined: an instruction precedes or follows the text that it is
about."""
_CODE = re.compile(r"```.*?(?:```|$)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|(?<!\w)'[^'\n]*'(?!\w)")
_PART = re.compile(r"(?<=[?？])|[.!:;。！：；\n]+(?=\s|$|[一-鿿ぁ-ヿ])")
_QUESTION = re.compile(
    r"^\W*(?:(?:and|so|but|ok|hi|hey|und|y|et)\W+)?(?:(?:how|what|what's|why|which|where|when|who|is|are|was|were|does|do|did"
    r"|has|wie|was|warum|wieso|wo|wann|wer|welche\w*|qué|cómo|por qué|dónde|cuándo|quién|cuál|comment|pourquoi|où|quand"
    r"|quel\w*|que|quoi|como|o que|come|cosa|perché|dove|как|что|почему|где|когда|кто)\b)"
    r"|\b(?:why|how|what|qué|cómo|warum|pourquoi)\b[^?]*\?|(?:怎么|怎样|如何|什么是)|(?:是什么|什么意思|吗)"
)
"""A part of a text that is a question."""
_MANNER = re.compile(
    r"(?:in|as|with|using|use|without|no|only|just|nothing|step|briefly|concise|point|line|one|max|at most|under|like"
    r"|als|ohne|nur|en|como|con|sin|sólo|solo|sous|sans|avec|seulement|em|com|sem|senza|come|kurz|ganz|по|в|без)\b|用|以|不|只"
)
"""First words of a form that describe the manner of an answer."""
_OWN = re.compile(r"\b(?:my|our|mein\w*|mi|mis|mon|mes)\b")


@functools.cache
def _patterns(kind: Literal["asked", "complained"]) -> dict[str, re.Pattern[str]]:
    """Returns patterns by aspect, and `alone`: only the result."""
    by_theme = tomllib.loads(_PHRASES.read_text("utf-8"))[kind]
    return {theme: re.compile("|".join(phrases.values())) for theme, phrases in by_theme.items()}


def asked_themes(request: str) -> frozenset[Theme]:
    """Returns the aspects of the answer's form that a request explicitly asks for."""
    if len(request) > 2 * _END:
        request = f"{request[:_END]}\n{request[-_END:]}"
    return _asked_themes(request)


@functools.lru_cache(maxsize=512)
def _asked_themes(request: str) -> frozenset[Theme]:
    read = _QUOTED.sub(" ", _CODE.sub(" ", request)).lower()
    parts = [part for part in _PART.split(read) if part.strip()]
    themes = {
        name for name, pattern in _patterns("asked").items() if any(_asks_by(pattern, part) for part in parts)
    }
    return frozenset(theme for theme in THEMES if theme in themes or ("alone" in themes and theme != "tone"))


def _asks_by(pattern: re.Pattern[str], part: str) -> bool:
    """Returns whether a part of a request asks for a form. The topic of a question is no such request ("how do I make
    a table?"). In a question a form counts if it describes the manner, or follows the last comma."""
    if not _QUESTION.search(part):
        return pattern.search(part) is not None
    tail = max(part.rfind(sign) for sign in ",，、") + 1
    return any(
        _MANNER.match(match.group().lstrip())
        or (tail and match.start() >= tail and not _OWN.search(part, 0, tail))
        for match in pattern.finditer(part)
    )


def wish_themes(wish: str) -> frozenset[Theme]:
    """Returns the aspects of an answer's form that a complaint or preference is about."""
    themes = {name for name, pattern in _patterns("complained").items() if pattern.search(wish.lower())}
    return asked_themes(wish) | {theme for theme in THEMES if theme in themes}


def has_question(text: str) -> bool:
    """Returns whether a text asks for information, in the languages in which `asked_themes` recognises questions."""
    return _QUESTION.search(text.lower()) is not None


def repeats(request: str, wish: str) -> bool:
    """Returns whether a complaint only repeats what its request had asked for."""
    themes = wish_themes(wish)
    return bool(themes) and themes <= asked_themes(request)


def is_overridden(wish: str, *requests: str) -> bool:
    """Returns whether a preference is about an aspect that one of the requests specifies itself."""
    themes = wish_themes(wish)
    return any(themes & asked_themes(request) for request in requests)
