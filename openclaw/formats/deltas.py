"""Deltas, the parts of a streamed answer: text, and fragments of tool calls."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

TextKind = Literal["content", "reasoning_content"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A part of the answer's text or reasoning."""

    kind: TextKind
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a valid tool call, with a new id."""

    name: str
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}", compare=False)


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A part of the JSON arguments of the last started call, which is known to be valid."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of the last started call."""


Delta = TextDelta | CallStart | CallArguments | CallEnd


def json_text(value: object) -> str:
    """Returns a value as JSON text that is valid Unicode: lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)


def is_unicode(text: str) -> bool:
    """Returns whether a text can be encoded as UTF-8: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_call(name: str, arguments: str) -> list[Delta]:
    """Returns the deltas of a complete call. `arguments` is JSON text."""
    return [CallStart(name), CallArguments(arguments), CallEnd()]


class AnswerParser(Protocol):
    """Converts sampled ids to deltas. Concatenated, they do not depend on how the ids are split between calls."""

    stop_ids: frozenset[int]

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Sets the prompt, which may open the reasoning, and the tools of the request. Called once, before the first
        ids."""

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Adds sampled ids [t]. Returns the deltas that are certain now."""

    def finish(self) -> list[Delta]:
        """Returns the last deltas, after the last id. An incomplete tool call is returned as text."""

    def reasoning_tokens(self) -> int:
        """Returns the number of ids of the reasoning so far, including its markers."""
