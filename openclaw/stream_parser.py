"""From sampled ids to what the client reads, as they come: reasoning, text, tool calls.

The format is Qwen3's: `<think>...</think>`, text, then `<tool_call>{json}</tool_call>` blocks; markers are
single tokens. Whatever way the ids are cut into pieces, the deltas add up to what `renderers` parses from the
whole. Two things cannot be told before more is known and wait for it: white space (it may be the end, and is
trimmed there), and a tool call inside reasoning (a later `</think>` makes it part of the thought).
"""

from __future__ import annotations

import codecs
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from openclaw.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer, or of the reasoning before it."""

    kind: Literal["content", "reasoning_content"]
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call. `arguments` is JSON text; `id` is new."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}", compare=False)


Delta = TextDelta | ToolCall


@dataclass(frozen=True)
class Qwen3Format:
    """Marker ids of Qwen3's answers."""

    think: int
    think_end: int
    tool_call: int
    tool_call_end: int
    stop: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer, stop: Iterable[int]) -> Qwen3Format:
        """Raises ConfigError when the tokenizer lacks a marker."""
        return cls(
            think=tokenizer.token_id("<think>"),
            think_end=tokenizer.token_id("</think>"),
            tool_call=tokenizer.token_id("<tool_call>"),
            tool_call_end=tokenizer.token_id("</tool_call>"),
            stop=frozenset(stop),
        )


class _State(Enum):
    START = auto()
    """Nothing but white space so far: a `<think>` would open the reasoning."""
    REASONING = auto()
    HELD_TOOL = auto()
    """A tool call inside reasoning: thought or call, what follows decides."""
    CONTENT = auto()
    TOOL = auto()
    AFTER_TOOL = auto()
    """Text between and after tool calls belongs to nothing."""
    DONE = auto()


class Qwen3StreamParser:
    """Feed it ids; it gives deltas.

    Args:
        tools: whether tool calls are parsed; without, their markup is text.
        thinking: whether the prompt has opened the reasoning already.
    """

    def __init__(self, tokenizer: Tokenizer, form: Qwen3Format, tools: bool, thinking: bool = False) -> None:
        self._bytes = tokenizer.token_bytes
        self._form = form
        self._tools = tools
        self._state = _State.REASONING if thinking else _State.START
        self._text = _TrimmedText()
        self._held: list[int] = []
        self._deltas: list[Delta] = []
        self.stop_ids = form.stop

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Deltas that these further ids make certain."""
        for token in ids:
            self._step(token)
        return self._take()

    def finish(self) -> list[Delta]:
        """The last deltas. A tool call that was not closed is no call."""
        self._end()
        return self._take()

    def _end(self) -> None:
        if self._state is _State.HELD_TOOL:  # no </think> came: the first call had ended the reasoning
            held, self._held = self._held, []
            self._close_text("reasoning_content")
            self._state = _State.AFTER_TOOL
            for token in held:
                self._step(token)
        elif self._state is _State.REASONING:
            self._close_text("reasoning_content")
        elif self._state in (_State.START, _State.CONTENT):
            self._close_text("content")
        self._state = _State.DONE

    def _step(self, token: int) -> None:
        form, state = self._form, self._state
        if state is _State.DONE:
            return
        if token in form.stop:
            self._end()
        elif state is _State.START:
            self._start(token)
        elif state is _State.CONTENT:
            self._content(token)
        elif state is _State.REASONING or state is _State.HELD_TOOL:
            self._reasoning(token)
        elif token == form.tool_call and state is _State.AFTER_TOOL:
            self._held, self._state = [], _State.TOOL
        elif state is _State.TOOL:
            self._tool(token)

    def _start(self, token: int) -> None:
        if token == self._form.think and self._text.is_blank():
            self._text = _TrimmedText()
            self._state = _State.REASONING
            return
        self._content(token)
        if self._state is _State.START and self._text.started:
            self._state = _State.CONTENT

    def _content(self, token: int) -> None:
        if self._tools and token == self._form.tool_call:
            self._close_text("content")
            self._held, self._state = [], _State.TOOL
            return
        self._add_text("content", token)

    def _reasoning(self, token: int) -> None:
        if token == self._form.think_end:
            for held in self._held:
                self._add_text("reasoning_content", held)
            self._held = []
            self._close_text("reasoning_content")
            self._state = _State.CONTENT
        elif self._state is _State.HELD_TOOL:
            self._held.append(token)
        elif self._tools and token == self._form.tool_call:
            self._held, self._state = [token], _State.HELD_TOOL
        elif token != self._form.think:
            self._add_text("reasoning_content", token)

    def _tool(self, token: int) -> None:
        if token != self._form.tool_call_end:
            self._held.append(token)
            return
        call = parse_tool_call(
            b"".join([self._bytes(held) for held in self._held]).decode("utf-8", "replace")
        )
        if call is not None:
            self._deltas.append(call)
        self._held, self._state = [], _State.AFTER_TOOL

    def _add_text(self, kind: Literal["content", "reasoning_content"], token: int) -> None:
        if kind == "reasoning_content" and token == self._form.think:
            return
        text = self._text.add(self._bytes(token))
        if text:
            self._append(kind, text)

    def _close_text(self, kind: Literal["content", "reasoning_content"]) -> None:
        text = self._text.close()
        if text:
            self._append(kind, text)
        self._text = _TrimmedText()

    def _append(self, kind: Literal["content", "reasoning_content"], text: str) -> None:
        last = self._deltas[-1] if self._deltas else None
        if isinstance(last, TextDelta) and last.kind == kind:
            self._deltas[-1] = TextDelta(kind, last.text + text)
        else:
            self._deltas.append(TextDelta(kind, text))

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas


def parse_tool_call(text: str) -> ToolCall | None:
    """The call in the text between the markers; None if it is not a JSON object with a name."""
    try:
        call = json.loads(text.strip())
    except (ValueError, RecursionError):
        return None
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str) or not name:
        return None
    arguments = call.get("arguments", {})
    return ToolCall(
        name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )


class _TrimmedText:
    """Bytes to text without its outer white space: what may still be trimmed, or is half a character,
    waits."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._space = ""
        self.started = False

    def is_blank(self) -> bool:
        """Whether there is nothing but white space so far."""
        return not self.started and self._decoder.getstate()[0] == b""

    def add(self, data: bytes) -> str:
        return self._visible(self._decoder.decode(data))

    def close(self) -> str:
        return self._visible(self._decoder.decode(b"", final=True))

    def _visible(self, text: str) -> str:
        if not text:
            return ""
        if not self.started:
            text = text.lstrip()
            self.started = bool(text)
        body = text.rstrip()
        if not body:
            self._space += text
            return ""
        shown, self._space = self._space + body, text[len(body) :]
        return shown
