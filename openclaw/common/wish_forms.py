"""The form of answer that a wish asks for explicitly, by patterns in several languages (`wish_forms.toml`)."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path


def forms_of(wish: str) -> tuple[str, ...]:
    """Returns the forms that a wish asks for, at most one each of length (brief, long), layout (prose, list, table,
    headings) and opening (greeting, no_greeting); () if none is known."""
    lowered = wish.lower()
    forms = (
        next((form for form, pattern in side if pattern.search(lowered)), None) for side in _sides().values()
    )
    return tuple(form for form in forms if form is not None)


@functools.cache
def _sides() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Forms with their patterns by side, in the order in which they are tried."""
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {side: [_entry(entry) for entry in entries] for side, entries in read.items()}


def _entry(entry: dict[str, str]) -> tuple[str, re.Pattern[str]]:
    return entry["form"], re.compile("|".join(value for name, value in entry.items() if name != "form"))
