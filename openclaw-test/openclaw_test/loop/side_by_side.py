"""Two texts in columns, for the end of the demo: an answer before and one after learning."""

from __future__ import annotations

import itertools
import textwrap

GAP = " | "


def side_by_side(question: str, before: str, after: str, width: int = 100) -> str:
    """Returns the question, and both answers in columns of equal width; `width` in characters, at least 24."""
    column = (max(width, 24) - len(GAP)) // 2
    pairs = itertools.zip_longest(_lines(before, column), _lines(after, column), fillvalue="")
    rows = [("before", "after"), ("-" * column, "-" * column), *pairs]
    head = textwrap.wrap(f"one answer to: {question}", max(width, 24))
    return "\n".join([*head, *(f"{left:<{column}}{GAP}{right}".rstrip() for left, right in rows)])


def _lines(text: str, width: int) -> list[str]:
    """Splits a text into lines of at most `width`."""
    lines = [textwrap.wrap(line, width) or [""] for line in text.strip().splitlines()]
    return list(itertools.chain.from_iterable(lines)) or ["(no answer)"]
