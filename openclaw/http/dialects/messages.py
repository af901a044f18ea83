"""POST /v1/messages: Anthropic's dialect, by the same code path as chats: converts its body to a chat body, and an
answer to its blocks.

Without `thinking` the model does not think, as in Anthropic's API.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.common.messages import content_of, part_text, picture_or_text, warn_tool_left_out
from openclaw.errors import ClientError
from openclaw.formats.deltas import CallArguments, CallStart, Delta, TextDelta, TextKind
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import (
    SHOWN,
    chat_request,
    function_call,
    function_tools,
    parse_body,
    refuse_missing,
)
from openclaw.gateway.exchange import Chunk, Completion, Exchange
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client
from openclaw.http.dialects.chat import reasoning_tokens, unfulfilled
from openclaw.http.openapi import ANTHROPIC, COUNT_TOKENS
from openclaw.http.response import AnswerResponse, prepare_all

router = APIRouter()
Json = dict[str, Any]

_SAME: tuple[str, ...] = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stream",
    "session_id",
    "turn_type",
    "train",
)
_SAME += ("session_done", "seed", "return_token_ids", "group", "task", "source")
_BLOCKS: dict[TextKind, tuple[str, str, Json]] = {
    "content": ("text", "text_delta", {"type": "text", "text": ""}),
    "reasoning_content": (
        "thinking",
        "thinking_delta",
        {"type": "thinking", "thinking": "", "signature": ""},
    ),
}
"""Text field, delta type, and first content of such a block."""


@router.post("/v1/messages", openapi_extra=ANTHROPIC)
async def create(request: Request) -> Response:
    return await _answered(request, _create)


@router.post("/v1/messages/count_tokens", openapi_extra=COUNT_TOKENS)
async def count_tokens(request: Request) -> Response:
    return await _answered(request, _count)


async def _answered(request: Request, handle: Callable[[Request, Json], Awaitable[Response]]) -> Response:
    """Runs a handler; errors have this dialect's format too."""
    try:
        check_client(request, request.app.state.gateway.settings)
        return await handle(request, parse_body(await request.body()))
    except ClientError as error:
        body = orjson.dumps(error.anthropic_body())
        wait = {} if error.retry_after is None else {"retry-after": str(round(error.retry_after))}
        return Response(body, error.status, wait, media_type="application/json")


async def _create(request: Request, body: Json) -> Response:
    gateway: Gateway = request.app.state.gateway
    if body.get("max_tokens") is None:
        raise ClientError("max_tokens: Field required", "max_tokens")
    translated = chat_body(body)
    if translated["messages"][-1]["role"] == "assistant":
        message = (
            "messages: this server does not support assistant message prefill. The conversation must end with a "
            "user message."
        )
        raise ClientError(message, "messages", "unsupported_value")
    checked = chat_request(translated, gateway.sees)
    caller = Caller.of(request.headers, translated, None, gateway.settings)
    exchanges = await prepare_all(gateway, checked, caller, "msg_")
    events = MessageEvents(exchanges[0], exchanges[0].model, checked.stream)
    return AnswerResponse(request, exchanges, events, checked.stream)


async def _count(request: Request, body: Json) -> Response:
    gateway: Gateway = request.app.state.gateway
    count = await gateway.count(chat_request(chat_body(body), gateway.sees))
    return Response(orjson.dumps({"input_tokens": count}), media_type="application/json")


def chat_body(body: Json) -> Json:
    """Returns the equivalent chat request. Raises ClientError."""
    refuse_missing(body)
    chat: Json = {name: body[name] for name in _SAME if name in body}
    chat["messages"] = [*_system(body.get("system")), *_messages(body.get("messages"))]
    chat["stop"] = body.get("stop_sequences")
    chat["tools"] = function_tools(_run_by_clients(body.get("tools")), _function)
    chat["tool_choice"], chat["parallel_tool_calls"] = _choice(body.get("tool_choice"))
    chat["chat_template_kwargs"] = {"enable_thinking": _thinks(body.get("thinking"))}
    chat["response_format"] = _form(body)
    metadata = body.get("metadata")
    person = _person(metadata.get("user_id")) if isinstance(metadata, dict) else None
    return chat if person is None else {**chat, "user": person}


def _form(body: Json) -> Json | None:
    """Returns the chat form of `output_config.format`, which was `output_format` in Anthropic's beta."""
    output = body.get("output_config")
    form = output.get("format") if isinstance(output, dict) else body.get("output_format")
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise ClientError("output_config.format must be {type: json_schema, schema}", "output_config.format")
    return {"type": "json_schema", "json_schema": form}


def _person(user_id: object) -> object:
    """Returns the person. Claude Code sends a JSON object with ids of the device, the session and, if a person is
    signed in, the account."""
    if not isinstance(user_id, str) or not user_id.startswith("{"):
        return user_id
    try:
        written = json.loads(user_id)
    except (ValueError, RecursionError):
        return user_id
    return written.get("account_uuid") or None


def _system(system: object) -> list[Json]:
    if system is None or system in ("", []):
        return []
    return [{"role": "system", "content": _text(system, "system")}]


def _messages(messages: object) -> list[Json]:
    if not isinstance(messages, list) or not messages:
        raise ClientError("messages must be a list with at least one message", "messages")
    chat_messages: list[Json] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            raise ClientError(f"{where}.role must be user, assistant or system", f"{where}.role")
        content, where = message.get("content"), f"{where}.content"
        if isinstance(content, str):
            chat_messages.append({"role": role, "content": content})
        else:
            blocks = _blocks(content, where)
            chat_messages += (
                [_assistant(blocks, where)] if role == "assistant" else _user(role, blocks, where)
            )
    return chat_messages


def _blocks(content: Any, where: str) -> list[Json]:
    fits = isinstance(content, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in content
    )
    if not fits:
        raise ClientError(f"{where} must be a string or a list of content blocks with a type", where)
    blocks: list[Json] = content
    return blocks


def _user(role: str, blocks: list[Json], where: str) -> list[Json]:
    """Returns a user message, preceded by its tool results as separate messages."""
    messages: list[Json] = []
    parts: list[str | Json] = []
    for index, block in enumerate(blocks):
        if block["type"] == "tool_result":
            content = block.get("content")
            results = [] if content is None else _parts(content, f"{where}[{index}].content")
            id_ = str(block.get("tool_use_id"))
            messages.append({"role": "tool", "tool_call_id": id_, "content": content_of(results)})
        else:
            parts += _parts([block], f"{where}[{index}]")
    return [*messages, {"role": role, "content": content_of(parts)}] if parts or not messages else messages


def _assistant(blocks: list[Json], where: str) -> Json:
    message: Json = {"role": "assistant", "content": ""}
    for index, block in enumerate(blocks):
        kind = block["type"]
        if kind == "tool_use":
            name, arguments = block.get("name"), block.get("input")
            if not isinstance(name, str):
                raise ClientError(f"{where}[{index}] must have a name", f"{where}[{index}]")
            arguments = (
                arguments if isinstance(arguments, dict) else {} if not arguments else {"input": arguments}
            )
            call = function_call(block.get("id"), name, json.dumps(arguments, ensure_ascii=False))
            message.setdefault("tool_calls", []).append(call)
        elif kind == "thinking":
            message["reasoning_content"] = message.get("reasoning_content", "") + str(
                block.get("thinking", "")
            )
        elif kind != "redacted_thinking":
            message["content"] += _text([block], f"{where}[{index}]")
    if not message["content"] and "tool_calls" in message:
        message["content"] = None
    return message


def _text(content: object, where: str) -> str:
    """Returns the text of a content, with placeholders for pictures."""
    return "".join(part if isinstance(part, str) else part_text(part) for part in _parts(content, where))


def _parts(content: object, where: str) -> list[str | Json]:
    """Returns the texts and pictures of a content."""
    if isinstance(content, str):
        return [content]
    parts: list[str | Json] = []
    for block in _blocks(content, where):
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise ClientError(f"{where}: the text of a text block must be a string", where)
        parts.append(picture_or_text(block))
    return parts


def _run_by_clients(tools: object) -> object:
    """Removes Anthropic's own tools, whose formats this model does not know."""
    if not isinstance(tools, list):
        return tools
    own = [tool for tool in tools if isinstance(tool, dict) and tool.get("type") not in (None, "custom")]
    for tool in own:
        warn_tool_left_out(str(tool["type"])[:SHOWN])
    return [tool for tool in tools if tool not in own] or None


def _function(tool: object, where: str) -> Json:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise ClientError(f"{where} must be an object with a name", where)
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {}}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    return function


def _choice(choice: Any) -> tuple[Any, bool]:
    """Returns OpenAI's tool_choice and parallel_tool_calls."""
    if choice is None:
        return None, True
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise ClientError("tool_choice must be {type: auto | any | tool | none}", "tool_choice")
    parallel = choice.get("disable_parallel_tool_use") is not True
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}, parallel
    return {"auto": "auto", "any": "required", "none": "none"}[kind], parallel


def _thinks(thinking: object) -> bool:
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if thinking is not None and kind not in ("enabled", "disabled", "adaptive"):
        raise ClientError("thinking must be {type: enabled | adaptive | disabled}", "thinking")
    return kind in ("enabled", "adaptive")


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

    def waiting(self, index: int) -> bytes:
        return _event("ping")

    def finished(self, index: int, answer: Completion) -> bytes:
        self._answer = answer
        if not self._stream:
            return b""
        ending: Json = {"stop_reason": self._reason(answer), "stop_sequence": self._stop_sequence()}
        ending |= unfulfilled(self._exchange, answer)
        return self._close() + _event("message_delta", delta=ending, usage=self._usage())

    def end(self) -> bytes:
        if self._stream:
            return _event("message_stop")
        assert self._answer is not None
        message = self._message(_content(self._answer), self._reason(self._answer))
        return _json({**message, **unfulfilled(self._exchange, self._answer)})

    def failure(self, error: ClientError) -> bytes:
        return b"event: error\ndata: " + orjson.dumps(error.anthropic_body()) + b"\n\n"

    def error_body(self, error: ClientError) -> Json:
        return error.anthropic_body()

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
        """As Anthropic counts: `input_tokens` are those of the prompt that were not in the cache."""
        exchange = self._exchange
        cached = exchange.cached
        return {
            "input_tokens": len(exchange.turn.prompt_ids) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": len(exchange.generation.ids),
            "output_tokens_details": {"thinking_tokens": reasoning_tokens(exchange)},
        }

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
        elif self._call is not None:
            return self._tool_use(self._call)
        return b""

    def _tool_use(self, call: CallStart) -> bytes:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": "".join(self._arguments)}
        events = self._close() + self._start(block) + self._block("content_block_delta", delta=delta)
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
        arguments = json.loads(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return blocks


def _json(message: Json) -> bytes:
    """Writes a call's input as JSON. Only Python's own writer can reproduce some JSON of models: integers of any
    length, lone surrogates."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message).encode()


def _event(name: str, **fields: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **fields}) + b"\n\n"
