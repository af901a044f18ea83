"""The shipped texts: everyday prompts to dream on, explicit wishes and prompts of other kinds for anchors."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from openclaw.types import Message

FOLDER = Path(__file__).parent / "data"
RAREST = -12.0
"""Log share of an n-gram that a language does not have."""
ENGLISH, SURELY = "en", 10.0
"""The default language, and the lead in nats that another language needs."""
Place = Literal["question", "system", "complaint"]
"""The place of a request in a conversation."""
QUESTION = "{Question}", "{question}"
"""The place of the question in a frame: as it is, and with a small first letter."""
FACT = "fact"
"""`kind` of a prompt with a known answer."""


@dataclass(frozen=True)
class Prompt:
    """An everyday question. `answers`: what a right answer to a `fact` may name; empty for other kinds."""

    id: str
    kind: str
    language: str
    text: str
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShippedWish:
    """An explicit wish, worded as a person may write it.

    Attributes:
        theme: the side of an answer that it is about.
        pole: what it asks for within the theme.
        place: its place in the prompt: after the question, in the system message, or in a comment on an earlier answer.
        earlier: that answer; question: the question of that answer, "" for any everyday prompt.
    """

    id: str
    theme: str
    pole: str
    language: str
    place: Place
    text: str
    earlier: str = ""
    question: str = ""


@dataclass(frozen=True)
class OtherPrompt:
    """A prompt of another kind: code, translation, a story."""

    id: str
    kind: str
    language: str
    messages: tuple[Message, ...] = field(hash=False)


@functools.cache
def prompts() -> tuple[Prompt, ...]:
    """Returns all everyday prompts, in the order of the file."""
    return tuple(_prompt(row) for row in rows_of("prompts.jsonl"))


@functools.cache
def everyday() -> tuple[Prompt, ...]:
    """Returns the prompts without a known answer."""
    return tuple(prompt for prompt in prompts() if prompt.kind != FACT)


@functools.cache
def facts() -> tuple[Prompt, ...]:
    """Returns the prompts with a known answer."""
    return tuple(prompt for prompt in prompts() if prompt.kind == FACT)


@functools.cache
def answers_of() -> Mapping[str, tuple[str, ...]]:
    """Returns the known answers by the id of their question."""
    return {prompt.id: prompt.answers for prompt in facts()}


@functools.cache
def wishes() -> tuple[ShippedWish, ...]:
    """Returns all explicit wishes, in the order of the file."""
    return tuple(ShippedWish(**row) for row in rows_of("wishes.jsonl"))


@functools.cache
def frames() -> tuple[ShippedWish, ...]:
    """Returns explicit wishes in whose text the question stands, at `QUESTION`, in the order of the file."""
    return tuple(ShippedWish(**row) for row in rows_of("frames.jsonl"))


@functools.cache
def others() -> tuple[OtherPrompt, ...]:
    """Returns all prompts of other kinds, in the order of the file."""
    return tuple(
        OtherPrompt(row["id"], row["kind"], row["language"], tuple(row["messages"]))
        for row in rows_of("others.jsonl")
    )


@functools.lru_cache(maxsize=256)
def language_of(text: str) -> str:
    """Returns the language of the shipped texts with the most similar character n-grams (one to three); English
    unless another language is clearly nearer."""
    pieces, known = _pieces(text), _pieces_by_language()
    near = {language: sum(shares.get(one, RAREST) for one in pieces) for language, shares in known.items()}
    best = max(sorted(near), key=lambda language: near[language])
    return best if near[best] - near[ENGLISH] > SURELY else ENGLISH


@functools.cache
def _pieces_by_language() -> dict[str, dict[str, float]]:
    """Returns the log share of each n-gram in a language."""
    counts: dict[str, Counter[str]] = {}
    texts = [(one.language, one.text) for one in prompts()] + [(one.language, one.text) for one in wishes()]
    for language, text in texts:
        counts.setdefault(language, Counter()).update(_pieces(text))
    return {
        language: {piece: math.log(count / pieces.total()) for piece, count in pieces.items()}
        for language, pieces in counts.items()
    }


def _pieces(text: str) -> list[str]:
    padded = f" {' '.join(text.lower().split())} "
    return [padded[at : at + size] for size in (1, 2, 3) for at in range(len(padded) - size + 1)]


def _prompt(row: dict[str, Any]) -> Prompt:
    answers = [row["answer"]] if row.get("answer") else []
    also = row.get("answer_also") or []
    answers += [also] if isinstance(also, str) else also
    return Prompt(row["id"], row["kind"], row["language"], row["text"], tuple(answers))


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        if line.strip():
            yield json.loads(line)
