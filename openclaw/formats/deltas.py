"""Parts of a streamed answer: pieces of text, and tool calls in fragments."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

TextKind = Literal["content", "reasoning_content"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, or of the reasoning before it."""

    kind: TextKind
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a valid tool call. `id` is new."""

    name: str
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}", compare=False)


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON arguments of the call begun last, which was parsed completely and is valid."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of the call begun last: all of its arguments were sent."""


Delta = TextDelta | CallStart | CallArguments | CallEnd


def json_text(value: object) -> str:
    """Returns a JSON value as sendable text: lone surrogates, which JSON can spell, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)


def is_unicode(text: str) -> bool:
    """Returns whether a text has no lone surrogates: otherwise it cannot be sent or stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_call(name: str, arguments: str) -> list[Delta]:
    """Returns the deltas of a call that was parsed in one piece."""
    return [CallStart(name), CallArguments(arguments), CallEnd()]


class AnswerParser(Protocol):
    """Converts sampled ids to deltas; their concatenation does not depend on how the ids are split."""

    stop_ids: frozenset[int]

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Called once before the first ids: the prompt may have opened the reasoning, and tools define argument
        types."""

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Returns the deltas that these ids complete."""

    def finish(self) -> list[Delta]:
        """Returns the last deltas. An unclosed tool call is returned as text."""

    def reasoning_tokens(self) -> int:
        """Returns the number of ids, of those fed so far, up to the end of the reasoning, with its markers."""
