"""What the gate's measurements mean, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEANING = {
    "change": "how far the weights moved, as a share of their norm",
    "most_change": "how far they may move, as earlier updates have shown",
    "kl": "distance to the live weights on the newest answers, nats a token",
    "recent": "newest answers that this was measured on",
    "liked_loss": "by how much answers that people liked became less likely, nats a token",
    "liked": "liked answers that this was measured on",
    "looked": "1: it answered before it went live; 0: it did not have to",
    "answers": "answers that were looked at",
    "empty": "share of them that are empty",
    "endless": "share of them that do not end",
    "repeating": "share of them that repeat themselves",
    "other_script": "share of them in another script than the live ones",
    "same": "share of the commonest answer",
    "length": "their mean length, tokens",
    "surprise": "how unlikely its own tokens are to it, nats a token",
    "right": "share of the questions that it answers right",
    "questions": "questions that this was measured on",
    "obeyed": "share of the explicit wishes that it obeys",
    "rejected": "1: the gate refused it",
    "seconds": "how long the examination took, seconds",
}
"""In the order of the stages. Others are shown by their names alone."""


def in_words(measurements: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """`(name, value, meaning)`, known ones first."""
    known = [name for name in MEANING if name in measurements]
    others = sorted(set(measurements) - set(known))
    return [(name, measurements[name], MEANING.get(name, "")) for name in (*known, *others)]
