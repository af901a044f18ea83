"""POST /v1/chat/completions: streamed (server-sent events) or as one JSON object, by one code path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.engine.generation import Increment
from openclaw.errors import ClientError
from openclaw.formats.deltas import CallArguments, CallStart, Delta, TextDelta
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import chat_request, parse_body
from openclaw.gateway.exchange import Chunk, Completion, Exchange
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client
from openclaw.http.openapi import CHAT
from openclaw.http.response import AnswerResponse, prepare_all

DONE = b"data: [DONE]\n\n"
router = APIRouter()


@router.post("/v1/chat/completions", openapi_extra=CHAT)
async def chat(request: Request) -> Response:
    return await _chat(request, None)


@router.post("/sessions/{session_id:path}/v1/chat/completions", openapi_extra=CHAT)
async def chat_in_session(request: Request, session_id: str) -> Response:
    return await _chat(request, session_id)


async def _chat(request: Request, path_session: str | None) -> Response:
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    body = parse_body(await request.body())
    caller = Caller.of(request.headers, body, path_session, gateway.settings)
    if caller.done and caller.scope and not body.get("messages"):
        if gateway.recorder:
            await gateway.recorder.end_session(caller.scope, caller.asker)
        ended = {"object": "session", "session_id": caller.scope, "session_done": True}
        return Response(orjson.dumps(ended), media_type="application/json")
    checked = chat_request(body, gateway.sees)
    exchanges = await prepare_all(gateway, checked, caller, "chatcmpl-")
    dialect = Chunks if checked.stream else Whole
    answer = dialect(exchanges, exchanges[0].model, gateway.tokenizer)
    return AnswerResponse(request, exchanges, answer, checked.stream)


def usage(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Returns the token usage of a request: its prompt once, and all sampled tokens, including end tokens."""
    return token_counts(exchanges[:1], exchanges)


def token_counts(prompts: Sequence[Exchange], answers: Sequence[Exchange]) -> dict[str, Any]:
    """Returns the tokens of these prompts and answers, in OpenAI's fields."""
    prompt = sum(len(exchange.turn.prompt_ids) for exchange in prompts)
    completion = sum(len(exchange.generation.ids) for exchange in answers)
    cached = sum(exchange.cached for exchange in prompts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(map(reasoning_tokens, answers))},
    }


def reasoning_tokens(exchange: Exchange) -> int:
    """Returns how many of the sampled tokens are reasoning. Ids of a call that the request opened were not sampled."""
    return min(exchange.parser.reasoning_tokens(), len(exchange.generation.ids))


def unfulfilled(exchange: Exchange, answer: Completion) -> dict[str, bool]:
    """Returns a response field that marks a missing required tool call."""
    return {"tool_choice_fulfilled": False} if exchange.unfulfilled(answer) else {}


def token_log_probs(
    increment: Increment, tokenizer: Tokenizer, hidden: frozenset[int]
) -> list[dict[str, Any]]:
    """Returns OpenAI's `logprobs.content` entries; ids in `hidden` (end tokens) are omitted."""
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


class OpenAIErrors:
    """The error formats of OpenAI's chat and completions."""

    def failure(self, error: ClientError) -> bytes:
        """Returns the last event of the stream; no `[DONE]` follows."""
        return b"data: " + orjson.dumps(error.body()) + b"\n\n"

    def error_body(self, error: ClientError) -> dict[str, Any]:
        return error.body()


class _Choice:
    """One of the answers in a stream."""

    def __init__(self, index: int, exchange: Exchange, tokenizer: Tokenizer) -> None:
        self.exchange = exchange
        self._index = index
        self._tokenizer = tokenizer
        self._calls = 0
        self._pending: list[dict[str, Any]] = []
        self._ids: list[int] = []
        self._log_probs: list[float] = []

    def collect(self, increment: Increment | None) -> None:
        request = self.exchange.request
        if increment is None:
            return
        if request.log_probs:
            hidden = self.exchange.parser.stop_ids
            self._pending += token_log_probs(increment, self._tokenizer, hidden)
        if request.return_token_ids:
            self._ids += increment.ids
            self._log_probs += increment.log_probs

    def body(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        request = self.exchange.request
        choice: dict[str, Any] = {"index": self._index, "delta": delta, "finish_reason": finish_reason}
        if request.log_probs:
            choice["logprobs"] = {"content": self._pending}
            self._pending = []
        if request.return_token_ids:
            choice["token_ids"], choice["token_log_probs"] = self._ids, self._log_probs
            self._ids, self._log_probs = [], []
        return choice

    def content(self, delta: Delta) -> dict[str, Any] | None:
        """Returns a delta in OpenAI's format: a call's name first, then its arguments in fragments."""
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


class Chunks(OpenAIErrors):
    """The chunks of a streamed answer, as bytes. Their common part is serialized once."""

    def __init__(self, exchanges: Sequence[Exchange], model: str, tokenizer: Tokenizer) -> None:
        self._exchanges = exchanges
        self._choices = [_Choice(index, exchange, tokenizer) for index, exchange in enumerate(exchanges)]
        self._request = exchanges[0].request
        head = {
            "id": exchanges[0].turn.completion_id,
            "object": "chat.completion.chunk",
            "created": int(exchanges[0].turn.created_at),
            "model": model,
            "session_id": exchanges[0].turn.session_id,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":'
        self._tail = b',"usage":null}\n\n' if self._request.include_usage else b"}\n\n"

    def start(self) -> bytes:
        """Returns the chunks with the role."""
        role = {"role": "assistant", "content": ""}
        events = [self._event(_bare(choice, index, role)) for index, choice in enumerate(self._choices)]
        if self._request.return_token_ids:
            ids = orjson.dumps(self._exchanges[0].turn.prompt_ids)
            events[0] = events[0].removesuffix(b"}\n\n") + b',"prompt_token_ids":' + ids + b"}\n\n"
        return b"".join(events)

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        choice = self._choices[index]
        choice.collect(chunk.increment)
        contents = [choice.content(delta) for delta in chunk.deltas]
        return b"".join([self._event(choice.body(content)) for content in contents if content is not None])

    def waiting(self, index: int) -> bytes:
        return self._event(self._choices[index].body({}))

    def finished(self, index: int, answer: Completion) -> bytes:
        choice = self._choices[index].body({}, answer.finish_reason)
        return self._event({**choice, **unfulfilled(self._exchanges[index], answer)})

    def end(self) -> bytes:
        """Returns usage if requested, and `[DONE]`."""
        if not self._request.include_usage:
            return DONE
        return self._head + b'[],"usage":' + orjson.dumps(usage(self._exchanges)) + b"}\n\n" + DONE

    def _event(self, choice: dict[str, Any]) -> bytes:
        return self._head + orjson.dumps([choice]) + self._tail


def _bare(choice: _Choice, index: int, delta: dict[str, Any]) -> dict[str, Any]:
    """Returns a choice without fields that its first piece has already sent."""
    request = choice.exchange.request
    body: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": None}
    if request.log_probs:
        body["logprobs"] = {"content": []}
    if request.return_token_ids:
        body["token_ids"], body["token_log_probs"] = [], []
    return body


class Whole(OpenAIErrors):
    """The response as one object, collected from the pieces."""

    def __init__(self, exchanges: Sequence[Exchange], model: str, tokenizer: Tokenizer) -> None:
        self._exchanges = exchanges
        self._model = model
        self._tokenizer = tokenizer
        self._log_probs: list[list[dict[str, Any]]] = [[] for _ in exchanges]
        self._answers: list[Completion | None] = [None for _ in exchanges]

    def start(self) -> bytes:
        return b""

    def waiting(self, index: int) -> bytes:
        return b""

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        exchange = self._exchanges[index]
        if exchange.request.log_probs and chunk.increment is not None:
            hidden = exchange.parser.stop_ids
            self._log_probs[index] += token_log_probs(chunk.increment, self._tokenizer, hidden)
        return b""

    def finished(self, index: int, answer: Completion) -> bytes:
        self._answers[index] = answer
        return b""

    def end(self) -> bytes:
        """Returns the whole chat completion as JSON."""
        first = self._exchanges[0]
        body: dict[str, Any] = {
            "id": first.turn.completion_id,
            "object": "chat.completion",
            "created": int(first.turn.created_at),
            "model": self._model,
            "session_id": first.turn.session_id,
            "choices": [self._choice(index, answer) for index, answer in enumerate(self._answers) if answer],
            "usage": usage(self._exchanges),
        }
        if first.request.return_token_ids:
            body["prompt_token_ids"] = first.turn.prompt_ids
        return orjson.dumps(body)

    def _choice(self, index: int, answer: Completion) -> dict[str, Any]:
        exchange = self._exchanges[index]
        choice: dict[str, Any] = {
            "index": index,
            "message": answer.message(),
            "logprobs": {"content": self._log_probs[index]} if exchange.request.log_probs else None,
            "finish_reason": answer.finish_reason,
            **unfulfilled(exchange, answer),
        }
        if exchange.request.return_token_ids:
            choice["token_ids"] = exchange.generation.ids
            choice["token_log_probs"] = exchange.generation.log_probs
        return choice
