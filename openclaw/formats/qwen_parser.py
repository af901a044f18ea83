"""Incremental parser of answers of the Qwen and Nemotron families: sampled ids to reasoning, text and tool calls.

The format is `<think>...</think>`, text, then `<tool_call>...</tool_call>` blocks, with JSON in Qwen3 and tags in later
models. Each marker is one token.

The deltas do not depend on how the ids are split. Together they equal the result of `renderers` for the whole answer,
except that invalid calls are text. Three things are held back until more ids arrive: white space, which is trimmed at
the end; a tool call inside reasoning, which a later `</think>` makes part of the reasoning; and a call that can still
become valid.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from openclaw.formats.deltas import Delta, TextDelta, TextKind
from openclaw.formats.tokenizer import Tokenizer
from openclaw.formats.tool_calls import CallReader, JsonReader, WholeReader, names_of


@dataclass(frozen=True)
class Qwen3Format:
    """Token ids of the markers in answers of the Qwen family."""

    think: int
    think_end: int
    tool_call: int
    tool_call_end: int
    stop: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer, stop: Iterable[int]) -> Qwen3Format:
        """Returns the marker ids of a tokenizer. Raises ConfigError if it lacks a marker."""
        return cls(
            think=tokenizer.token_id("<think>"),
            think_end=tokenizer.token_id("</think>"),
            tool_call=tokenizer.token_id("<tool_call>"),
            tool_call_end=tokenizer.token_id("</tool_call>"),
            stop=frozenset(stop),
        )


ReadCall = Callable[[list[int], list[dict[str, Any]] | None], Any]
"""Parses the ids of a call, given the tools of the request, to a response of `renderers`."""

OPEN_THOUGHT_IDS = 3
"""Number of ids at the end of the prompt in which the template may have written `<think>`."""


class _State(Enum):
    START = auto()
    """Only white space so far; a `<think>` would open the reasoning."""
    REASONING = auto()
    HELD_TOOL = auto()
    """In a tool call inside reasoning. It is part of the reasoning if `</think>` follows."""
    CONTENT = auto()
    TOOL = auto()
    """In a call that can still become valid."""
    INVALID_TOOL = auto()
    """In an invalid call, which is text up to its end marker."""
    AFTER_TOOL = auto()
    """After a valid call; text between and after calls is discarded."""
    DONE = auto()


class Qwen3StreamParser:
    """Converts sampled ids to deltas, see `AnswerParser`.

    Args:
        tools: whether tool calls are parsed; otherwise their markup is text.
        read_call: parser of calls that are not JSON; None for JSON.
    """

    def __init__(
        self, tokenizer: Tokenizer, form: Qwen3Format, tools: bool, read_call: ReadCall | None = None
    ) -> None:
        self._bytes = tokenizer.token_bytes
        self._form = form
        self._tools = tools
        self._state = _State.START
        self._text = TrimmedText()
        self._held: list[int] = []
        self._read_call = read_call
        self._request_tools: list[dict[str, Any]] | None = None
        self._call: CallReader
        self._block: list[int] = []
        self._deltas: list[Delta] = []
        self._reasoning_tokens = 0
        self._markers = {form.think, form.think_end, form.tool_call, form.tool_call_end, *form.stop}
        self.stop_ids = form.stop

    def begin(self, prompt_ids: Sequence[int], tools: list[dict[str, Any]] | None) -> None:
        """Sets the prompt and the tools of the request. If the prompt ends with an open `<think>`, the answer begins
        with reasoning."""
        self._request_tools = tools
        if self._form.think in prompt_ids[-OPEN_THOUGHT_IDS:]:
            tail = list(prompt_ids[-OPEN_THOUGHT_IDS:])
            if self._form.think_end not in tail[tail.index(self._form.think) :]:
                self._state = _State.REASONING

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """Returns the deltas that these ids complete."""
        at = 0
        while at < len(ids):
            end = self._text_until(ids, at)
            if end > at:
                data = b"".join([self._bytes(token) for token in ids[at:end]])
                kind: TextKind = "content" if self._state is _State.CONTENT else "reasoning_content"
                self._reasoning_tokens += end - at if kind == "reasoning_content" else 0
                self._add_bytes(kind, data)
                at = end
            else:
                self._step(ids[at])
                at += 1
        return self._take()

    def _text_until(self, ids: Sequence[int], at: int) -> int:
        """Returns the end of the ids without markers that begin at `at`; `at` if they must be parsed one by one."""
        if self._state is _State.CONTENT or self._state is _State.REASONING:
            while at < len(ids) and ids[at] not in self._markers:
                at += 1
        return at

    def finish(self) -> list[Delta]:
        """Returns the last deltas. An incomplete tool call is returned as text."""
        self._end()
        return self._take()

    def reasoning_tokens(self) -> int:
        """Returns the number of ids of the reasoning so far, including its markers."""
        return self._reasoning_tokens

    def _end(self) -> None:
        if self._state is _State.HELD_TOOL:  # without a </think>, the first call ends the reasoning
            held, self._held = self._held, []
            self._close_text("reasoning_content")
            self._state = _State.AFTER_TOOL
            for token in held:
                self._step(token)
        if self._state is _State.TOOL:
            self._block_to_text()
        if self._state is _State.REASONING:
            self._close_text("reasoning_content")
        else:
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
            self._open_call()
        elif state is _State.TOOL:
            self._tool(token)
        elif state is _State.INVALID_TOOL:
            self._invalid_tool(token)

    def _start(self, token: int) -> None:
        if token == self._form.think and self._text.is_blank():
            self._text = TrimmedText()
            self._state = _State.REASONING
            self._reasoning_tokens += 1
            return
        self._content(token)
        if self._state is _State.START and self._text.started:
            self._state = _State.CONTENT

    def _content(self, token: int) -> None:
        if self._tools and token == self._form.tool_call:
            self._open_call()
            return
        self._add_text("content", token)

    def _reasoning(self, token: int) -> None:
        if token == self._form.think_end:
            self._reasoning_tokens += len(self._held) + 1
            for held in self._held:
                self._add_text("reasoning_content", held)
            self._held = []
            self._close_text("reasoning_content")
            self._state = _State.CONTENT
        elif self._state is _State.HELD_TOOL:
            self._held.append(token)
        elif self._tools and token == self._form.tool_call:
            self._held, self._state = [token], _State.HELD_TOOL
        else:
            self._reasoning_tokens += 1
            self._add_text("reasoning_content", token)

    def _open_call(self) -> None:
        self._call, self._block = self._new_call(), [self._form.tool_call]
        self._state = _State.TOOL

    def _new_call(self) -> CallReader:
        read, tools, names = self._read_call, self._request_tools, names_of(self._request_tools)
        if read is None:
            return JsonReader(self._bytes, names)
        begin, end = self._form.tool_call, self._form.tool_call_end
        return WholeReader(lambda ids: read(ids, tools), begin, end, names)

    def _tool(self, token: int) -> None:
        self._block.append(token)
        if token != self._form.tool_call_end:
            if not self._call.add(token):
                self._block_to_text()
                self._state = _State.INVALID_TOOL
            return
        call = self._call.close()
        if call:
            self._close_text("content")
            self._deltas += call
            self._state = _State.AFTER_TOOL
        else:
            self._block_to_text()
            self._state = _State.CONTENT

    def _invalid_tool(self, token: int) -> None:
        self._add_text("content", token)
        if token == self._form.tool_call_end:
            self._state = _State.CONTENT

    def _block_to_text(self) -> None:
        """Adds the tokens of an invalid call as text."""
        block, self._block = self._block, []
        for token in block:
            self._add_text("content", token)

    def _add_text(self, kind: TextKind, token: int) -> None:
        if kind == "reasoning_content" and token == self._form.think:
            return
        self._add_bytes(kind, self._bytes(token))

    def _add_bytes(self, kind: TextKind, data: bytes) -> None:
        text = self._text.add(data)
        if text:
            self._append(kind, text)

    def _close_text(self, kind: TextKind) -> None:
        text = self._text.close()
        if text:
            self._append(kind, text)
        self._text = TrimmedText()

    def _append(self, kind: TextKind, text: str) -> None:
        last = self._deltas[-1] if self._deltas else None
        if isinstance(last, TextDelta) and last.kind == kind:
            self._deltas[-1] = TextDelta(kind, last.text + text)
        else:
            self._deltas.append(TextDelta(kind, text))

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas


class TrimmedText:
    """Decodes UTF-8 incrementally and strips the text. Trailing white space and incomplete characters are held back."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._space = ""
        self.started = False

    def is_blank(self) -> bool:
        """Returns whether the text so far is empty or white space."""
        return not self.started and self._decoder.getstate()[0] == b""

    def add(self, data: bytes) -> str:
        """Adds bytes. Returns the text that is certain now."""
        return self._visible(self._decoder.decode(data))

    def close(self) -> str:
        """Returns the rest of the text."""
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
        visible, self._space = self._space + body, text[len(body) :]
        return visible
