"""Whether a person's message calls the result of an answer wrong, and not its form."""

from __future__ import annotations

import re

from openclaw.judge.rules.wordings import RESULTS, bounded

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_PLAIN = str.maketrans("’‘？！：", "''?!:")


def rejects_result(said: str) -> bool:
    """A message that speaks of form too ("Wrong. I asked for a list.") is about that, as far as anybody can tell."""
    sentences = _SENTENCE.split(bounded(said).lower().translate(_PLAIN))
    if any(RESULTS["form"].search(sentence) for sentence in sentences):
        return False
    return any(RESULTS["wrong"].search(sentence) for sentence in sentences if not _asks(sentence))


def _asks(sentence: str) -> bool:
    return sentence.rstrip().endswith("?")
