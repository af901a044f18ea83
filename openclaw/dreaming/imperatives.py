"""Plain sentences that ask for what a person wishes, for a teacher that does not understand the person's own words.

A complaint such as "way too long my guy" makes 0.15 to 0.35 of SmolLM2-135M's answers brief, a plain sentence 0.85
(lab/findings/dreaming.md). What a complaint asks for follows from what it is about and from the answer that it is about:
about length it asks for a shorter answer if that one was long.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Literal

from openclaw.common.wish_themes import wish_themes
from openclaw.dreaming.texts import rows_of
from openclaw.dreaming.themes import pole_of

Pole = Literal["short", "prose"]

LONG_ANSWER = 50
"""Words from which a complaint about length may want less."""
LIST_LINES = 2
"""Lines with a bullet or a number that make a list."""
_THEMES: Mapping[Pole, str] = {"short": "length", "prose": "layout"}
_COUNTED = re.compile(r"\b(?:one|two|few|\d|too much|at most|enough|exceeds?|length)\b", re.IGNORECASE)
"""Of a complaint that names sentences or paragraphs: it is about their number."""
_ITEM = re.compile(r"^\s*(?:[-*•‣–]|\d{1,2}[.)、])\s*\S", re.MULTILINE)
_WIDE = re.compile(r"[぀-ヿ㐀-鿿가-힯]")


def asked_pole(wish: str, answer: str) -> Pole | None:
    """What a complaint about an answer asks for; None if that is not sure.

    Args:
        answer: the text that the person complained about.
    """
    themes = wish_themes(wish)
    if themes == {"length"} and _words(answer) >= LONG_ANSWER:
        # Of a long answer too a person may want more.
        return "short" if pole_of(wish, least=0.0) == named("short") else None
    if themes == {"layout"} and len(_ITEM.findall(answer)) >= LIST_LINES:
        return None if _COUNTED.search(wish) else "prose"
    return None


def named(pole: Pole) -> str:
    """As `themes.pole_of` names it."""
    return f"{_THEMES[pole]} {pole}"


def imperatives(pole: Pole, language: str) -> tuple[str, ...]:
    """Sentences that ask for it, in this language if there are some, else in English."""
    return _all().get((pole, language)) or _all()[pole, "en"]


def all_imperatives() -> tuple[str, ...]:
    return tuple(text for texts in _all().values() for text in texts)


@functools.cache
def _all() -> Mapping[tuple[str, str], tuple[str, ...]]:
    return {(row["pole"], row["language"]): tuple(row["texts"]) for row in rows_of("imperatives.jsonl")}


def _words(text: str) -> int:
    """Two characters of a script without spaces count as a word."""
    wide = len(_WIDE.findall(text))
    return wide // 2 + len(_WIDE.sub(" ", text).split())
