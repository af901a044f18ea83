"""What a text says about the form of an answer: its layout, its length, its tone; in the languages of the rules judge.

A wish that only repeats what its own request had asked for ("I asked for a list") is about that request. It is told
by themes, not by words: "bullet points" and "numbered list" are one. A request asks for a form by a phrase ("as a list,
please"), for lists, tables and short things are what requests are about; a complaint is about an answer, and names its
form by a word. What `wish_themes.toml` does not know asks for nothing.
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
"""Characters at either end of a text that are read: what is asked for stands before or behind what it is about."""
_CODE = re.compile(r"```.*?(?:```|$)|`[^`\n]*`", re.DOTALL)


@functools.cache
def _patterns(said: Literal["asked", "complained"]) -> dict[str, re.Pattern[str]]:
    """By theme, and `alone`: nothing but the result."""
    by_theme = tomllib.loads(_PHRASES.read_text("utf-8"))[said]
    return {theme: re.compile("|".join(phrases.values())) for theme, phrases in by_theme.items()}


def asked_themes(request: str) -> frozenset[Theme]:
    """Which sides of the answer's form a request asks for in so many words."""
    if len(request) > 2 * _END:
        request = f"{request[:_END]}\n{request[-_END:]}"
    return _asked_themes(request)


@functools.lru_cache(maxsize=512)
def _asked_themes(request: str) -> frozenset[Theme]:
    read = _CODE.sub(" ", request).lower()
    found = {name for name, pattern in _patterns("asked").items() if pattern.search(read)}
    return frozenset(theme for theme in THEMES if theme in found or ("alone" in found and theme != "tone"))


def wish_themes(wish: str) -> frozenset[Theme]:
    """Which sides of an answer's form a complaint or wish is about."""
    found = {name for name, pattern in _patterns("complained").items() if pattern.search(wish.lower())}
    return asked_themes(wish) | {theme for theme in THEMES if theme in found}


def repeats(request: str, wish: str) -> bool:
    """Whether a wish is about nothing but what its request had asked for."""
    themes = wish_themes(wish)
    return bool(themes) and themes <= asked_themes(request)


def gives_way(wish: str, *requests: str) -> bool:
    """Whether a wish speaks of a side of the form that one of the requests asks for itself."""
    themes = wish_themes(wish)
    return any(themes & asked_themes(request) for request in requests)
