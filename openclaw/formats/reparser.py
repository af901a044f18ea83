"""Streams answers of model families without an incremental parser, by parsing growing prefixes of the answer.

The parsers of `renderers` expect a complete answer. On a prefix, their result may still change: a later `</think>`
makes text reasoning, and text that begins with `{` may become a tool call. Therefore only output that no later marker
can change is returned.
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
"""Most tokens between two parses. Short answers are parsed after every token."""
_STEP_GROWTH = 64
"""Number of tokens after which the step grows by one."""


@dataclass(frozen=True)
class WholeFormat:
    """The properties of a model family that WholeParser needs.

    Attributes:
        renderer: renderer of `renderers`, which parses complete answers.
        markers: names of its special tokens, which may also occur as text.
        probes: ids of its special tokens.
        stop: ids that end the answer.
        bare_json: whether a tool call is a JSON object without markers, so that an answer that begins with a brace may
            be one until its end.
    """

    renderer: Any
    markers: tuple[str, ...]
    probes: tuple[int, ...]
    stop: frozenset[int]
    bare_json: bool


@dataclass(frozen=True)
class _Parsed:
    """Result of a parse: `calls` are (name, JSON arguments), `invalid` the texts of invalid calls."""

    reasoning: str
    content: str
    calls: list[tuple[str, str]]
    invalid: list[str]


class WholeParser:
    """Converts sampled ids to deltas, see `AnswerParser`.

    Args:
        tools: whether tool calls are returned; otherwise they are omitted.
    """

    def __init__(self, tokenizer: Tokenizer, form: WholeFormat, tools: bool) -> None:
        self._bytes = tokenizer.token_bytes
        self._form = form
        self._returns_calls = tools
        self._tools: list[dict[str, Any]] | None = None
        self._prompt: list[int] = []
        self._ids: list[int] = []
        self._next_parse = 1
        self._ended = False
        self._sent: dict[TextKind, str] = {"reasoning_content": "", "content": ""}
        self._sent_calls = 0
        self.stop_ids = form.stop

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Sets the prompt ids [T] and the tools of the request, for the family's parser."""
        self._prompt, self._tools = list(prompt_ids), tools

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Returns the deltas that these ids complete."""
        for token in ids:
            if token in self._form.stop:
                self._ended = True
            if not self._ended:
                self._ids.append(token)
        if self._ended or len(self._ids) < self._next_parse:
            return []
        self._next_parse = len(self._ids) + min(LARGEST_STEP, 1 + len(self._ids) // _STEP_GROWTH)
        return self._new_deltas(self._stable())

    def finish(self) -> list[Delta]:
        """Returns the rest of the output. Invalid calls are returned as text."""
        parsed = self._parse(self._ids)
        deltas = self._new_deltas(parsed)
        for text in filter(None, parsed.invalid):
            separator = "\n" if self._sent["content"] else ""
            self._sent["content"] += separator + text
            deltas.append(TextDelta("content", separator + text))
        return deltas

    def reasoning_tokens(self) -> int:
        """Returns the number of ids after which the reasoning is complete; 0 without reasoning."""
        reasoning = self._parse(self._ids).reasoning
        if not reasoning:
            return 0
        lengths = range(len(self._ids) + 1)
        return bisect_left(lengths, True, key=lambda end: self._parse(self._ids[:end]).reasoning == reasoning)

    def _parse(self, ids: list[int]) -> _Parsed:
        parsed = self._form.renderer.parse_response(ids, tools=self._tools, prompt_ids=self._prompt)
        valid, invalid = calls_of(parsed, names_of(self._tools)) if self._returns_calls else ([], [])
        reasoning = (parsed.reasoning_content or "").strip()
        return _Parsed(reasoning, (parsed.content or "").strip(), valid, invalid)

    def _stable(self) -> _Parsed:
        """Returns the part of the output that is the same with each possible next marker."""
        ids = self._complete_characters()
        now = self._parse(ids)
        if self._form.bare_json and (not now.content or now.content[0] in "{<"):
            return _Parsed("", "", [], [])
        possible = [now, *(self._parse([*ids, probe]) for probe in self._form.probes)]
        calls = 0
        while all(one.calls[: calls + 1] == now.calls[: calls + 1] for one in possible):
            if calls == len(now.calls):
                break
            calls += 1
        return _Parsed(
            self._stable_text([one.reasoning for one in possible]),
            self._stable_text([one.content for one in possible]),
            now.calls[:calls],
            [],
        )

    def _complete_characters(self) -> list[int]:
        """Returns the ids without an incomplete character at the end."""
        end = len(self._ids)
        for _ in range(4):
            data = b"".join(self._bytes(token) for token in self._ids[max(0, end - 8) : end])
            if not data.decode("utf-8", "replace").endswith("�"):
                break
            end -= 1
        return self._ids[:end]

    def _stable_text(self, texts: list[str]) -> str:
        """Returns the common prefix of texts, without a possible beginning of a special token at its end."""
        text = _common_prefix(texts).rstrip()
        longest = max((len(marker) for marker in self._form.markers), default=1) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(marker.startswith(text[start:]) for marker in self._form.markers):
                return text[:start].rstrip()
        return text

    def _new_deltas(self, parsed: _Parsed) -> list[Delta]:
        """Returns the deltas of the output that was not returned before."""
        deltas: list[Delta] = []
        kinds: tuple[tuple[TextKind, str], ...] = (
            ("reasoning_content", parsed.reasoning),
            ("content", parsed.content),
        )
        for kind, text in kinds:
            sent = self._sent[kind]
            if len(text) <= len(sent):
                continue
            if not text.startswith(sent):
                log.warning(
                    "the parsed text of an answer changed after a part of it was sent; the rest of it is not sent"
                )
                continue
            deltas.append(TextDelta(kind, text[len(sent) :]))
            self._sent[kind] = text
        for name, arguments in parsed.calls[self._sent_calls :]:
            deltas += whole_call(name, arguments)
        self._sent_calls = max(self._sent_calls, len(parsed.calls))
        return deltas


def _common_prefix(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    end = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:end]
