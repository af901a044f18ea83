"""Plain sentences that ask for a form of answer, which a model understands better than some users' own words.

"way too long my guy" before a question makes 0.15 to 0.35 of SmolLM2-135M's answers brief, a plain sentence 0.85
(lab/findings/dreaming.md).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Pole = Literal["short", "long", "prose", "list", "greet", "no_greeting"]
"""A requested form: a short or a long answer, plain prose or a list, a greeting first or none."""


def plain_sentences(pole: Pole, language: str) -> tuple[str, ...]:
    """Returns sentences that ask for it in a language (`en`, `de`, ...); English ones if there are none in that
    language."""
    return _all().get((pole, language)) or _all()[pole, "en"]


def all_plain_sentences() -> tuple[str, ...]:
    """Returns the sentences of all forms and languages."""
    return tuple(text for texts in _all().values() for text in texts)


def pole_of_plain_sentence(text: str) -> Pole | None:
    """Returns the requested form if a text begins with one of these sentences, else None."""
    return next((pole for (pole, _), texts in _all().items() if text.startswith(texts)), None)


def without_plain_sentence(text: str) -> str:
    """Returns the text after the plain sentence with which it begins, or all of it."""
    return text.removeprefix(max(filter(text.startswith, all_plain_sentences()), key=len, default="")).strip()


@functools.cache
def _all() -> Mapping[tuple[Pole, str], tuple[str, ...]]:
    lines = Path(__file__).with_suffix(".jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return {(row["pole"], row["language"]): tuple(row["texts"]) for row in rows}
