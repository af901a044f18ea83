"""Anthropic's wire format of an answer: content blocks, as events or in one message."""

from __future__ import annotations

import json
from typing import Any

import orjson

from openclaw.errors import ClientError
from openclaw.formats.deltas import CallArguments, CallEnd, CallStart, Delta, TextDelta, TextKind
from openclaw.gateway.exchange import Chunk, Completion, Exchange

Json = dict[str, Any]

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_BLOCKS: dict[TextKind, tuple[str, str, Json]] = {
    "content": ("text", "text_delta", {"type": "text", "text": ""}),
    "reasoning_content": (
        "thinking",
        "thinking_delta",
        {"type": "thinking", "thinking": "", "signature": ""},
    ),
}
"""Text field, type of deltas, and how such a block begins."""


def error_body(error: ClientError) -> Json:
    """Anthropic's error object."""
    kind = "api_error" if error.status >= 500 else _ERROR_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}, "request_id": None}


class MessageEvents:
    """One message, streamed or whole."""

    def __init__(self, exchange: Exchange, model: str, stream: bool) -> None:
        self._exchange = exchange
        self._model = model
        self._stream = stream
        self._answer: Completion | None = None
        self._index = -1
        self._open: TextKind | None = None
        self._call: CallStart | None = None
        self._arguments: list[str] = []

    def start(self) -> bytes:
        return _event("message_start", message=self._message([], None))

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        return b"".join([self._delta(delta) for delta in chunk.deltas]) if self._stream else b""

    def finished(self, index: int, answer: Completion) -> bytes:
        self._answer = answer
        if not self._stream:
            return b""
        ending = {"stop_reason": self._reason(answer), "stop_sequence": self._stop_sequence()}
        return self._close() + _event("message_delta", delta=ending, usage=self._usage())

    def end(self) -> bytes:
        if self._stream:
            return _event("message_stop")
        assert self._answer is not None
        return _json(self._message(_content(self._answer), self._reason(self._answer)))

    def failure(self, error: ClientError) -> bytes:
        return b"event: error\ndata: " + orjson.dumps(error_body(error)) + b"\n\n"

    def error_body(self, error: ClientError) -> Json:
        return error_body(error)

    def _message(self, content: list[Json], reason: str | None) -> Json:
        exchange = self._exchange
        message: Json = {
            "id": exchange.turn.completion_id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": self._stop_sequence() if reason else None,
            "usage": self._usage(),
            "session_id": exchange.turn.session_id,
        }
        if exchange.request.return_token_ids:
            message["prompt_token_ids"] = exchange.turn.prompt_ids
            message["token_ids"] = exchange.generation.ids
            message["token_log_probs"] = exchange.generation.log_probs
        return message

    def _usage(self) -> Json:
        exchange = self._exchange
        return {"input_tokens": len(exchange.turn.prompt_ids), "output_tokens": len(exchange.generation.ids)}

    def _stop_sequence(self) -> str | None:
        matched = self._exchange.generation.matched
        return matched if isinstance(matched, str) else None

    def _reason(self, answer: Completion) -> str:
        if answer.finish_reason == "stop":
            return "stop_sequence" if self._stop_sequence() is not None else "end_turn"
        return {"length": "max_tokens", "tool_calls": "tool_use"}[answer.finish_reason]

    def _delta(self, delta: Delta) -> bytes:
        if isinstance(delta, TextDelta):
            field, kind, empty = _BLOCKS[delta.kind]
            opened = b"" if self._open == delta.kind else self._close() + self._start(empty)
            self._open = delta.kind
            return opened + self._block("content_block_delta", delta={"type": kind, field: delta.text})
        if isinstance(delta, CallStart):
            self._call, self._arguments = delta, []
        elif isinstance(delta, CallArguments):
            self._arguments.append(delta.text)
        elif isinstance(delta, CallEnd) and delta.complete and self._call is not None:
            return self._tool_use(self._call)
        return b""

    def _tool_use(self, call: CallStart) -> bytes:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        given = {"type": "input_json_delta", "partial_json": "".join(self._arguments)}
        events = self._close() + self._start(block) + self._block("content_block_delta", delta=given)
        return events + self._block("content_block_stop")

    def _start(self, block: Json) -> bytes:
        self._index += 1
        return self._block("content_block_start", content_block=block)

    def _close(self) -> bytes:
        was, self._open = self._open, None
        return self._block("content_block_stop") if was else b""

    def _block(self, name: str, **fields: object) -> bytes:
        return _event(name, index=self._index, **fields)


def _content(answer: Completion) -> list[Json]:
    blocks: list[Json] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": "".join(answer.reasoning), "signature": ""})
    if answer.content:
        blocks.append({"type": "text", "text": "".join(answer.content)})
    for call in answer.tool_calls:
        function = call["function"]
        given = json.loads(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
    return blocks


def _json(message: Json) -> bytes:
    """What a model writes as a call's input may be JSON that only Python's own writer can write again: whole numbers of
    any length, half a surrogate pair."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message).encode()


def _event(name: str, **fields: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **fields}) + b"\n\n"
