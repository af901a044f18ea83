"""POST /v1/completions: plain prompts, as text or ids, by the same code path as chats.

A prompt is stored as the only message of its turn, a user message marked `"format": "raw"`, with exact ids. No later
request continues such a turn by its transcript; feedback can refer to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.engine.generation import Increment
from openclaw.errors import ClientError, PromptTooLongError
from openclaw.formats.deltas import TextDelta
from openclaw.formats.raw_text import RawText
from openclaw.formats.rendering import RawPrompt
from openclaw.formats.tokenizer import SURELY_READ, Tokenizer
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import (
    LARGE_HISTORY_CHARACTERS,
    MAX_ANSWERS,
    MAX_TOP_LOGPROBS,
    ChatRequest,
    boolean,
    chat_request,
    integer,
    parse_body,
)
from openclaw.gateway.exchange import Chunk, Completion, Exchange
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client
from openclaw.http.dialects.chat import DONE, OpenAIErrors, token_counts
from openclaw.http.openapi import COMPLETION
from openclaw.http.response import AnswerResponse, prepare_all

router = APIRouter()
DEFAULT_MAX_TOKENS = 16
"""OpenAI's default."""


@router.post("/v1/completions", openapi_extra=COMPLETION)
async def complete(request: Request) -> Response:
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    data = await request.body()
    body = parse_body(data)
    if len(data) < LARGE_HISTORY_CHARACTERS:
        checked = completion_requests(body, gateway.tokenizer, gateway.context_length)
    else:
        checked = await asyncio.to_thread(
            completion_requests, body, gateway.tokenizer, gateway.context_length
        )
    caller = Caller.of(request.headers, body, None, gateway.settings)
    exchanges: list[Exchange] = []
    for one in checked:
        exchanges += await prepare_all(gateway, one, caller, "cmpl-")
    stop = gateway.format.stop_ids
    exchanges = [replace(exchange, parser=RawText(gateway.tokenizer, stop)) for exchange in exchanges]
    stream = checked[0].stream
    texts = Texts(exchanges, exchanges[0].model, gateway.tokenizer, stream, body.get("echo") is True)
    return AnswerResponse(request, exchanges, texts, stream)


def completion_requests(body: dict[str, Any], tokenizer: Tokenizer, context_length: int) -> list[ChatRequest]:
    """Returns one validated request a prompt. Raises ClientError that names the wrong field."""
    prompts = _prompts(body.get("prompt"), tokenizer, context_length)
    echo, top = boolean(body, "echo"), integer(body, "logprobs", 0, MAX_TOP_LOGPROBS)
    if top is not None and echo:
        raise ClientError("echo: log-probs of prompts are not supported; remove logprobs or echo", "echo")
    if body.get("suffix"):
        raise ClientError("suffix: not supported by this server; remove it", "suffix", "unsupported_value")
    if body.get("best_of") not in (None, 1, body.get("n")):
        raise ClientError(
            "best_of: not supported by this server, which returns all n answers; remove it",
            "best_of",
            "unsupported_value",
        )
    left_out = {"prompt", "echo", "logprobs", "tools", "tool_choice", "max_completion_tokens"}
    left_out |= {"chat_template_kwargs", "reasoning_effort", "enable_thinking"}
    common = {key: value for key, value in body.items() if key not in left_out}
    common["messages"] = [{"role": "user", "content": ""}]
    checked = replace(chat_request(common), body=body, log_probs=top is not None, top_log_probs=top or 0)
    if len(prompts) * checked.n > MAX_ANSWERS:
        raise ClientError(f"prompt: at most {MAX_ANSWERS} answers (prompts times n) per request", "prompt")
    limit = DEFAULT_MAX_TOKENS if checked.max_tokens is None else checked.max_tokens
    return [replace(checked, messages=[prompt], max_tokens=limit) for prompt in prompts]


def _prompts(prompt: object, tokenizer: Tokenizer, context_length: int) -> list[RawPrompt]:
    """Returns the prompts: text, ids, or a list of either."""
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and _is_id(prompt[0])):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise ClientError("prompt must be a string, a list of strings, token ids or a list of them", "prompt")
    prompts = []
    for one in prompt:
        if isinstance(one, str):
            if len(one) > SURELY_READ * context_length and tokenizer.exceeds([one], context_length):
                raise PromptTooLongError(context_length + 1, context_length, len(one))
            ids = tokenizer.encode_markup(one)
        elif isinstance(one, list) and all(_is_id(token) and tokenizer.token_bytes(token) for token in one):
            ids = one
        else:
            raise ClientError(
                "prompt: each prompt must be text or a list of this model's token ids", "prompt"
            )
        if not ids:
            raise ClientError("prompt must not be empty", "prompt")
        prompts.append(RawPrompt(one if isinstance(one, str) else tokenizer.decode(ids), ids))
    return prompts


def _is_id(value: object) -> bool:
    return type(value) is int


class Texts(OpenAIErrors):
    """OpenAI's text completions, streamed or whole."""

    def __init__(
        self, exchanges: Sequence[Exchange], model: str, tokenizer: Tokenizer, stream: bool, echo: bool
    ) -> None:
        self._exchanges = exchanges
        self._tokenizer = tokenizer
        self._stream = stream
        self._echo = echo
        self._request = exchanges[0].request
        self._offsets = [0] * len(exchanges)
        self._choices: list[dict[str, Any]] = [self._choice(index) for index in range(len(exchanges))]
        self._head = {
            "id": exchanges[0].turn.completion_id,
            "object": "text_completion",
            "created": int(exchanges[0].turn.created_at),
            "model": model,
            "session_id": exchanges[0].turn.session_id,
        }

    def start(self) -> bytes:
        if not self._echo:
            return b""
        prompts = [exchange.request.messages[0]["content"] for exchange in self._exchanges]
        return b"".join(self._event({**self._choice(i), "text": text}) for i, text in enumerate(prompts))

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        choice = self._choice(index) if self._stream else self._choices[index]
        choice["text"] += "".join(delta.text for delta in chunk.deltas if isinstance(delta, TextDelta))
        self._collect(index, choice, chunk.increment)
        return self._event(choice) if self._stream else b""

    def waiting(self, index: int) -> bytes:
        return b""

    def finished(self, index: int, answer: Completion) -> bytes:
        if self._stream:
            return self._event({**self._choice(index), "finish_reason": answer.finish_reason})
        self._choices[index]["finish_reason"] = answer.finish_reason
        return b""

    def end(self) -> bytes:
        counts = self._usage()
        if self._stream:
            last = self._event(None, usage=counts) if self._request.include_usage else b""
            return last + DONE
        if self._echo:
            for exchange, choice in zip(self._exchanges, self._choices, strict=True):
                choice["text"] = exchange.request.messages[0]["content"] + choice["text"]
        return orjson.dumps({**self._head, "choices": self._choices, "usage": counts})

    def _usage(self) -> dict[str, Any]:
        return token_counts(self._exchanges[:: self._request.n], self._exchanges)

    def _choice(self, index: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "text": "", "logprobs": None, "finish_reason": None}
        if self._request.log_probs:
            names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            choice["logprobs"] = {name: [] for name in names}
        if self._request.return_token_ids:
            choice |= {"token_ids": [], "token_log_probs": []}
            choice["prompt_token_ids"] = self._exchanges[index].turn.prompt_ids
        return choice

    def _collect(self, index: int, choice: dict[str, Any], increment: Increment | None) -> None:
        if increment is None:
            return
        if self._request.return_token_ids:
            choice["token_ids"] += increment.ids
            choice["token_log_probs"] += increment.log_probs
        if not self._request.log_probs:
            return
        columns = choice["logprobs"]
        for at, (token, log_prob) in enumerate(zip(increment.ids, increment.log_probs, strict=True)):
            if token in self._exchanges[index].parser.stop_ids:
                continue
            best = increment.top[at] if increment.top else []
            columns["tokens"].append(self._text(token))
            columns["token_logprobs"].append(log_prob)
            columns["top_logprobs"].append({self._text(other): value for value, other in best})
            columns["text_offset"].append(self._offsets[index])
            self._offsets[index] += len(self._text(token))

    def _text(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode("utf-8", "replace")

    def _event(self, choice: dict[str, Any] | None, **more: object) -> bytes:
        body = {**self._head, "choices": [] if choice is None else [choice], **more}
        return b"data: " + orjson.dumps(body) + b"\n\n"
