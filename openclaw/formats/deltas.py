"""The parts of an answer, as it streams: pieces of text, and tool calls in fragments."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

TextKind = Literal["content", "reasoning_content"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer, or of the reasoning before it."""

    kind: TextKind
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A sound tool call. `id` is new."""

    name: str
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}", compare=False)


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of the arguments of the call begun last, which was read to its end and is sound."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call begun last is over: all of its arguments were sent."""


Delta = TextDelta | CallStart | CallArguments | CallEnd


def json_text(value: object) -> str:
    """Returns a JSON value as text that can be sent: half a surrogate pair, which JSON can spell, stays spelled."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)


def is_unicode(text: str) -> bool:
    """Returns whether a text has no half of a surrogate pair: only then can it be sent and stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_call(name: str, arguments: str) -> list[Delta]:
    """Returns a call that was read in one piece."""
    return [CallStart(name), CallArguments(arguments), CallEnd()]


class AnswerParser(Protocol):
    """Sampled ids to deltas; whatever way the ids are cut, the deltas add up to the same."""

    stop_ids: frozenset[int]

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Called once, before the first ids: the prompt may have opened the reasoning, and tools define types."""

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Deltas that these further ids make certain."""

    def finish(self) -> list[Delta]:
        """Returns the last deltas. A tool call that was not closed is text."""
