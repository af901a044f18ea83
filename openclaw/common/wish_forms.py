"""Detects the form of answer that a preference explicitly asks for, by patterns in several languages
(`wish_forms.toml`)."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path


def forms_of(wish: str) -> tuple[str, ...]:
    """Returns the requested forms, at most one each of length (brief, long), layout (prose, list, table, headings)
    and opening (greeting, no_greeting); () if none is known."""
    lowered = wish.lower()
    forms = (
        next((form for form, pattern in side if pattern.search(lowered)), None) for side in _sides().values()
    )
    return tuple(form for form in forms if form is not None)


@functools.cache
def _sides() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Returns the forms and their patterns by aspect, in the order in which they are tried."""
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {side: [_entry(entry) for entry in entries] for side, entries in read.items()}


def _entry(entry: dict[str, str]) -> tuple[str, re.Pattern[str]]:
    return entry["form"], re.compile("|".join(value for name, value in entry.items() if name != "form"))
