"""OpenAI's wire format of a chat answer: one JSON object, or server-sent events."""

from __future__ import annotations

from typing import Any

import orjson

from openclaw.deltas import CallArguments, CallStart, Delta, TextDelta
from openclaw.exchange import Answer, Exchange, Piece
from openclaw.generation import Increment
from openclaw.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


def usage(exchange: Exchange) -> dict[str, int]:
    """Tokens of an exchange; the end token that was sampled counts."""
    prompt, completion = len(exchange.prompt_ids), len(exchange.generation.ids)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def token_log_probs(
    increment: Increment, tokenizer: Tokenizer, hidden: frozenset[int]
) -> list[dict[str, Any]]:
    """OpenAI's `logprobs.content` entries; ids in `hidden` (end tokens) have none."""
    entries = []
    for index, (token, log_prob) in enumerate(zip(increment.ids, increment.log_probs, strict=True)):
        if token not in hidden:
            best = increment.top[index] if increment.top else []
            entry = _entry(tokenizer, token, log_prob)
            entry["top_logprobs"] = [_entry(tokenizer, other, value) for value, other in best]
            entries.append(entry)
    return entries


def _entry(tokenizer: Tokenizer, token: int, log_prob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {"token": data.decode("utf-8", "replace"), "logprob": log_prob, "bytes": list(data)}


class Chunks:
    """The chunks of one streamed answer, as bytes. What is the same in all of them is made once."""

    def __init__(self, exchange: Exchange, model: str, tokenizer: Tokenizer) -> None:
        self._exchange = exchange
        self._tokenizer = tokenizer
        self._calls = 0
        self._pending: list[dict[str, Any]] = []
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        head = {
            "id": exchange.id,
            "object": "chat.completion.chunk",
            "created": int(exchange.created),
            "model": model,
            "session_id": exchange.session_id,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":'
        self._tail = b',"usage":null}\n\n' if exchange.request.include_usage else b"}\n\n"

    def start(self) -> bytes:
        """The chunk that names the role."""
        choice = self._choice({"role": "assistant", "content": ""})
        event = self._event([choice])
        if self._exchange.request.return_token_ids:
            ids = orjson.dumps(self._exchange.prompt_ids)
            event = event.removesuffix(b"}\n\n") + b',"prompt_token_ids":' + ids + b"}\n\n"
        return event

    def piece(self, piece: Piece) -> bytes:
        """Chunks of one piece; empty when nothing of it may be seen yet."""
        self._collect(piece.increment)
        events = []
        for delta in piece.deltas:
            content = self._content(delta)
            if content is not None:
                events.append(self._event([self._choice(content)]))
        return b"".join(events)

    def end(self, answer: Answer) -> bytes:
        """Finish reason, usage if asked for, and `[DONE]`."""
        choice = self._choice({})
        choice["finish_reason"] = answer.finish_reason
        events = self._event([choice])
        if self._exchange.request.include_usage:
            tail = b',"usage":' + orjson.dumps(usage(self._exchange)) + b"}\n\n"
            events += self._head + b"[]" + tail
        return events + DONE

    def _collect(self, increment: Increment | None) -> None:
        request = self._exchange.request
        if increment is None:
            return
        if request.log_probs:
            hidden = self._exchange.parser.stop_ids
            self._pending += token_log_probs(increment, self._tokenizer, hidden)
        if request.return_token_ids:
            self._ids += increment.ids
            self._log_probs += increment.log_probs

    def _choice(self, delta: dict[str, Any]) -> dict[str, Any]:
        request = self._exchange.request
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        if request.log_probs:
            choice["logprobs"] = {"content": self._pending}
            self._pending = []
        if request.return_token_ids:
            choice["token_ids"], choice["token_log_probs"] = self._ids, self._log_probs
            self._ids, self._log_probs = [], []
        return choice

    def _content(self, delta: Delta) -> dict[str, Any] | None:
        """A delta in OpenAI's shape: a call's name first, then its arguments in fragments."""
        if isinstance(delta, TextDelta):
            return {delta.kind: delta.text}
        if isinstance(delta, CallStart):
            self._calls += 1
            function = {"name": delta.name, "arguments": ""}
            call = {"index": self._calls - 1, "id": delta.id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        if isinstance(delta, CallArguments):
            return {"tool_calls": [{"index": self._calls - 1, "function": {"arguments": delta.text}}]}
        return None

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        return self._head + orjson.dumps(choices) + self._tail


class Whole:
    """The answer as one object, collected from its pieces."""

    def __init__(self, exchange: Exchange, model: str, tokenizer: Tokenizer) -> None:
        self._exchange = exchange
        self._model = model
        self._tokenizer = tokenizer
        self._log_probs: list[dict[str, Any]] = []

    def piece(self, piece: Piece) -> None:
        if self._exchange.request.log_probs and piece.increment is not None:
            hidden = self._exchange.parser.stop_ids
            self._log_probs += token_log_probs(piece.increment, self._tokenizer, hidden)

    def end(self, answer: Answer) -> bytes:
        """The whole chat completion as JSON."""
        exchange = self._exchange
        choice: dict[str, Any] = {
            "index": 0,
            "message": answer.message(),
            "logprobs": {"content": self._log_probs} if exchange.request.log_probs else None,
            "finish_reason": answer.finish_reason,
        }
        body: dict[str, Any] = {
            "id": exchange.id,
            "object": "chat.completion",
            "created": int(exchange.created),
            "model": self._model,
            "session_id": exchange.session_id,
            "choices": [choice],
            "usage": usage(exchange),
        }
        if exchange.request.return_token_ids:
            choice["token_ids"] = exchange.generation.ids
            choice["token_log_probs"] = exchange.generation.log_probs
            body["prompt_token_ids"] = exchange.prompt_ids
        return orjson.dumps(body)
