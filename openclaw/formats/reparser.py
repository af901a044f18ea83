"""Streams the output of a family's whole-answer parser, for families without an incremental parser here.

The parser of `renderers` needs the whole answer. Run on growing prefixes, it may revise its output: text before a
`</think>` becomes reasoning, `{` becomes a tool call. Only output that no later marker can change is passed on.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openclaw.formats.deltas import Delta, TextDelta, TextKind, whole_call
from openclaw.formats.tokenizer import Tokenizer
from openclaw.formats.tool_calls import calls_of, names_of

log = logging.getLogger(__name__)

LARGEST_STEP = 16
"""Tokens between two parses of a long answer; a short one is parsed at every token."""
_STEP_GROWTH = 64


@dataclass(frozen=True)
class WholeFormat:
    """The properties of a family that the adapter needs.

    renderer: parses whole answers. markers: its special tokens, as text. probes: ids of special tokens.
    bare_json: an answer that begins with a brace may be a tool call until its end.
    """

    renderer: Any
    markers: tuple[str, ...]
    probes: tuple[int, ...]
    stop: frozenset[int]
    bare_json: bool


@dataclass(frozen=True)
class _Reading:
    reasoning: str
    content: str
    calls: list[tuple[str, str]]
    unsound: list[str]
    """The text of each invalid call."""


class WholeParser:
    """Converts ids to deltas.

    Args:
        tools: whether calls are passed on.
    """

    def __init__(self, tokenizer: Tokenizer, form: WholeFormat, tools: bool) -> None:
        self._bytes = tokenizer.token_bytes
        self._form = form
        self._passes_calls = tools
        self._tools: list[dict[str, Any]] | None = None
        self._prompt: list[int] = []
        self._ids: list[int] = []
        self._next_look = 1
        self._over = False
        self._sent: dict[TextKind, str] = {"reasoning_content": "", "content": ""}
        self._sent_calls = 0
        self.stop_ids = form.stop

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Takes prompt ids [T] and tools for the family's parser."""
        self._prompt, self._tools = list(prompt_ids), tools

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Returns the deltas that these ids complete."""
        for token in ids:
            if token in self._form.stop:
                self._over = True
            if not self._over:
                self._ids.append(token)
        if self._over or len(self._ids) < self._next_look:
            return []
        self._next_look = len(self._ids) + min(LARGEST_STEP, 1 + len(self._ids) // _STEP_GROWTH)
        return self._pass_on(self._stable())

    def finish(self) -> list[Delta]:
        """Returns the output held back so far. Invalid calls are text."""
        reading = self._read(self._ids)
        deltas = self._pass_on(reading)
        for text in filter(None, reading.unsound):
            before = "\n" if self._sent["content"] else ""
            self._sent["content"] += before + text
            deltas.append(TextDelta("content", before + text))
        return deltas

    def reasoning_tokens(self) -> int:
        """Returns the number of ids after which the reasoning was complete."""
        reasoning = self._read(self._ids).reasoning
        if not reasoning:
            return 0
        lengths = range(len(self._ids) + 1)
        return bisect_left(lengths, True, key=lambda end: self._read(self._ids[:end]).reasoning == reasoning)

    def _read(self, ids: list[int]) -> _Reading:
        parsed = self._form.renderer.parse_response(ids, tools=self._tools, prompt_ids=self._prompt)
        sound, unsound = calls_of(parsed, names_of(self._tools)) if self._passes_calls else ([], [])
        reasoning = (parsed.reasoning_content or "").strip()
        return _Reading(reasoning, (parsed.content or "").strip(), sound, unsound)

    def _stable(self) -> _Reading:
        """Returns the part that no later marker can change."""
        ids = self._whole_characters()
        now = self._read(ids)
        if self._form.bare_json and (not now.content or now.content[0] in "{<"):
            return _Reading("", "", [], [])
        futures = [now, *(self._read([*ids, probe]) for probe in self._form.probes)]
        calls = 0
        while all(future.calls[: calls + 1] == now.calls[: calls + 1] for future in futures):
            if calls == len(now.calls):
                break
            calls += 1
        return _Reading(
            self._settled([future.reasoning for future in futures]),
            self._settled([future.content for future in futures]),
            now.calls[:calls],
            [],
        )

    def _whole_characters(self) -> list[int]:
        """Returns the ids without an incomplete character at the end."""
        end = len(self._ids)
        for _ in range(4):
            data = b"".join(self._bytes(token) for token in self._ids[max(0, end - 8) : end])
            if not data.decode("utf-8", "replace").endswith("�"):
                break
            end -= 1
        return self._ids[:end]

    def _settled(self, texts: list[str]) -> str:
        """Returns the common beginning, without a possible start of a special token at its end."""
        text = _common_beginning(texts).rstrip()
        longest = max((len(marker) for marker in self._form.markers), default=1) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(marker.startswith(text[start:]) for marker in self._form.markers):
                return text[:start].rstrip()
        return text

    def _pass_on(self, reading: _Reading) -> list[Delta]:
        deltas: list[Delta] = []
        kinds: tuple[tuple[TextKind, str], ...] = (
            ("reasoning_content", reading.reasoning),
            ("content", reading.content),
        )
        for kind, text in kinds:
            sent = self._sent[kind]
            if len(text) <= len(sent):
                continue
            if not text.startswith(sent):
                log.warning(
                    "the parse of an answer changed after a part of it was sent; the rest is not sent"
                )
                continue
            deltas.append(TextDelta(kind, text[len(sent) :]))
            self._sent[kind] = text
        for name, arguments in reading.calls[self._sent_calls :]:
            deltas += whole_call(name, arguments)
        self._sent_calls = max(self._sent_calls, len(reading.calls))
        return deltas


def _common_beginning(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    end = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:end]
