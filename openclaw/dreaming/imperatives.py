"""Determines the wished form from a complaint, by phrases and by its answer: a complaint about the length of a long
answer asks for a shorter one. A teacher then reads a plain sentence instead of the person's own words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from openclaw.common.answer_form import already_has, greets, is_list, is_long
from openclaw.common.plain_sentences import Pole, pole_of_plain_sentence, without_plain_sentence
from openclaw.common.wish_forms import forms_of
from openclaw.common.wish_themes import wish_themes
from openclaw.dreaming.themes import pole_of

_THEMES: Mapping[Pole, str] = {
    "short": "length", "long": "length", "prose": "layout", "list": "layout", "greet": "greeting",
    "no_greeting": "greeting",
}  # fmt: skip
_FORMS: Mapping[str, Pole] = {
    "brief": "short", "long": "long", "prose": "prose", "list": "list", "greeting": "greet",
    "no_greeting": "no_greeting",
}  # fmt: skip
_COUNTED = re.compile(
    r"\b(?:one|two|few|\d|too much|at most|enough|exceeds?|length"
    r"|(?:first|second|third|fourth|fifth|sixth|last|\d+(?:st|nd|rd|th)) (?:paragraph|sentence|line|page)"
    r"|(?:three|four|five|six|seven|eight|nine|ten) (?:paragraphs|sentences|lines|pages))\b",
    re.IGNORECASE,
)
"""Matches a complaint about the number of sentences or paragraphs, or about one of them."""


def asked_pole(wish: str, answer: str) -> Pole | None:
    """Returns the pole that a complaint about an answer asks for; None if it is not certain.

    Args:
        answer: the text that the person complained about; empty: its form is not known.
    """
    plain = pole_of_plain_sentence(wish)
    if plain is not None:
        return None if answer and plain in already_has(answer) else plain
    forms = forms_of(wish)
    if len(forms) == 1 and forms[0] in _FORMS and not _has(answer, _FORMS[forms[0]]):
        return _FORMS[forms[0]]
    themes = wish_themes(wish)
    if themes == {"length"} and is_long(answer):
        # A person may want even more of a long answer.
        return "short" if pole_of(wish) == named("short") else None
    if themes == {"layout"} and is_list(answer):
        return None if _COUNTED.search(wish) else "prose"
    return None


def is_in_words(wish: str, pole: Pole) -> bool:
    """Returns whether phrases in the person's own words ask for the pole, so that no judge had to guess it."""
    return pole in (_FORMS.get(form) for form in forms_of(without_plain_sentence(wish)))


def _has(answer: str, pole: Pole) -> bool:
    """Returns whether an answer has the wished form already, so that the pattern matched something else."""
    if pole == "no_greeting":
        return not greets(answer)
    return pole in already_has(answer) or pole == ("long" if is_long(answer) else "short")


def named(pole: Pole) -> str:
    """Returns the name of a pole as in `themes.pole_of`."""
    return f"{_THEMES[pole]} {pole}"
