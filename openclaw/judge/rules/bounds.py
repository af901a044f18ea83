"""How much of a text the rules look at: their expressions take time that grows faster than the text."""

from __future__ import annotations

import re

END_CHARACTERS = 3_000
"""Of the beginning and of the end of a text. What people say, and what tools say of how they ended, stands there."""
RUN_CHARACTERS = 40
"""Of white space, or of one character again and again."""
_RUN = re.compile(rf"(\s{{{RUN_CHARACTERS}}})\s+|((.)\3{{{RUN_CHARACTERS - 1}}})\3+", re.DOTALL)


def bounded(text: str) -> str:
    """The text as the rules read it: without its middle where it is very long, and with long runs cut short."""
    if len(text) > 2 * END_CHARACTERS:
        text = f"{text[:END_CHARACTERS]}\n{text[-END_CHARACTERS:]}"
    return _RUN.sub(lambda run: run[1] or run[2], text)
