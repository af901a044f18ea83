"""POST /v1/responses: OpenAI's Responses dialect, by the same code path as chats: converts items to messages, and an
answer to items.

`previous_response_id` is looked up in the store, so turns must be recorded. `store: false` has no effect: the server
decides whether turns are recorded, and `X-Train: off` opts out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.common.messages import content_of, note, part_text, picture_or_text, with_picture_parts
from openclaw.errors import ClientError
from openclaw.formats.deltas import CallArguments, CallStart, Delta, TextDelta
from openclaw.gateway.caller import Caller, asker_named
from openclaw.gateway.chat_request import chat_request, function_call, parse_body, refuse_missing, thinking_of
from openclaw.gateway.exchange import Chunk, Completion, Exchange
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.running import Use
from openclaw.http.auth import check_client
from openclaw.http.dialects.chat import OpenAIErrors, unfulfilled, usage
from openclaw.http.dialects.responses_items import (
    MOST_REFERENCES,
    call_of,
    is_reference,
    is_result,
    item_of,
    own_result_of,
    result_of,
    turn_of,
)
from openclaw.http.dialects.responses_tools import chat_tools, joined, namespaces
from openclaw.http.openapi import RESPONSE
from openclaw.http.response import AnswerResponse, prepare_all
from openclaw.store.rights import Asker, may_use
from openclaw.types import Turn

router = APIRouter()
Json = dict[str, Any]

_SAME: tuple[str, ...] = (
    "model",
    "temperature",
    "top_p",
    "stream",
    "parallel_tool_calls",
    "user",
    "session_id",
)
_SAME += ("turn_type", "train", "session_done", "prompt_cache_key", "chat_template_kwargs", "seed", "top_k")
_SAME += ("return_token_ids", "group", "task", "source")
_LOG_PROBS = "message.output_text.logprobs"
_INSTRUCTIONS = "instructions"
"""Mark of system messages that later requests do not inherit."""
_REPEATED = ("instructions", "metadata", "previous_response_id", "temperature", "top_p", "max_output_tokens")


@router.post("/v1/responses", openapi_extra=RESPONSE)
async def create(request: Request) -> Response:
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    body = parse_body(await request.body())
    reading = Use(None)  # the request may name stored turns of other people
    with gateway.uses.during(reading):
        return await _create(request, gateway, body, reading.began)


async def _create(request: Request, gateway: Gateway, body: Json, began: float) -> Response:
    asker = asker_named(request.headers, body, gateway.settings)
    body["input"] = await _referenced(gateway, body.get("input"), asker)
    previous = await _previous(gateway, body.get("previous_response_id"), asker)
    translated = chat_body(body, previous)
    checked = chat_request(translated, gateway.sees)
    caller = replace(Caller.of(request.headers, translated, None, gateway.settings), began=began)
    if previous is not None and caller.scope is None:
        caller = replace(caller, scope=previous.session_id)
    exchanges = await prepare_all(gateway, checked, caller, "resp_")
    events = ResponseEvents(exchanges[0], exchanges[0].model, body)
    return AnswerResponse(request, exchanges, events, checked.stream)


async def _previous(gateway: Gateway, response_id: object, asker: Asker) -> Turn | None:
    """Returns the turn to continue. Raises ClientError if there is none that the asker may access."""
    if response_id is None:
        return None
    turn = None
    if isinstance(response_id, str) and response_id.isprintable() and gateway.recorder is not None:
        turn = await asyncio.to_thread(gateway.recorder.store.turns.get_by_completion, response_id)
    if turn is None or not may_use(asker, turn.key_name, turn.person):
        message = f"Previous response with id {response_id!r} not found; send the whole conversation as input instead"
        raise ClientError(message, "previous_response_id", "previous_response_not_found", 404)
    return turn


async def _referenced(gateway: Gateway, items: object, asker: Asker) -> object:
    """Returns the input with references replaced by items of stored answers, as far as the asker may access them."""
    if not isinstance(items, list) or not any(map(is_reference, items)) or gateway.recorder is None:
        return items
    ids = {turn_of(item["id"]): None for item in items if is_reference(item)}
    by_id = {}
    for turn_id in list(ids)[:MOST_REFERENCES]:
        turn = await asyncio.to_thread(gateway.recorder.store.turns.get_by_completion, f"resp_{turn_id}")
        if turn is not None and may_use(asker, turn.key_name, turn.person):
            by_id[turn_id] = turn.response_message
    return [
        item_of(by_id[turn_of(item["id"])], item["id"]) or item
        if is_reference(item) and turn_of(item["id"]) in by_id
        else item
        for item in items
    ]


def chat_body(body: Json, previous: Turn | None) -> Json:
    """Returns the equivalent chat request. Raises ClientError."""
    for name in ("background", "conversation", "prompt"):
        if body.get(name):
            raise ClientError(f"{name}: not supported by this server; remove it", name, "unsupported_value")
    _check_included(body)
    refuse_missing(body)
    chat: Json = {name: body[name] for name in _SAME if name in body}
    chat["messages"] = [*_history(body.get("instructions"), previous), *_messages(body.get("input"))]
    chat["max_completion_tokens"] = body.get("max_output_tokens")
    chat["tools"] = chat_tools(body.get("tools"))
    chat["tool_choice"] = _choice(body.get("tool_choice"))
    chat["response_format"] = _form(body.get("text"))
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort is not None:
        options = thinking_of(effort, "reasoning.effort")
        template_options = chat.get("chat_template_kwargs")
        chat["chat_template_kwargs"] = {
            **options,
            **(template_options if isinstance(template_options, dict) else {}),
        }
    return chat


def _check_included(body: Json) -> None:
    """Raises ClientError for output that this server never returns. Other includes (search results, encrypted
    reasoning) belong to items that this server's answers do not have."""
    include = body.get("include") or []
    if not isinstance(include, list) or not all(isinstance(one, str) for one in include):
        raise ClientError("include must be a list of strings", "include")
    for name, asked in (("include", _LOG_PROBS in include), ("top_logprobs", bool(body.get("top_logprobs")))):
        if asked:
            message = f"{name}: /v1/responses returns no log-probs; use logprobs of /v1/chat/completions"
            raise ClientError(message, name, "unsupported_value")


def _history(instructions: object, previous: Turn | None) -> list[Json]:
    messages: list[Json] = []
    if previous is not None:
        messages = [*with_picture_parts(previous.messages), previous.response_message]
        messages = [message for message in messages if message.get("format") != _INSTRUCTIONS]
    if instructions is None:
        return messages
    if not isinstance(instructions, str):
        raise ClientError("instructions must be a string", "instructions")
    return [{"role": "system", "content": instructions, "format": _INSTRUCTIONS}, *messages]


def _messages(items: object) -> list[Json]:
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise ClientError("input must be a string or a list with at least one item", "input")
    messages: list[Json] = []
    for index, item in enumerate(items):
        where = f"input[{index}]"
        if not isinstance(item, dict) or not isinstance(item.get("type") or "message", str):
            raise ClientError(f"{where} must be an object with a type", where)
        kind = item.get("type") or "message"
        if is_result(kind):
            messages.append(result_of(item))
        elif kind == "message" and item.get("role") != "assistant":
            content = content_of(_parts(item.get("content"), f"{where}.content"))
            messages.append({"role": item.get("role"), "content": content})
        else:
            _add_to_answer(messages, kind, item, where)
    return messages


def _add_to_answer(messages: list[Json], kind: str, item: Json, where: str) -> None:
    """Merges consecutive reasoning, text and calls into one assistant message."""
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    if last is None or (kind == "reasoning" and (last["content"] or "tool_calls" in last)):
        last = {"role": "assistant", "content": None}
        messages.append(last)
    if kind == "message":
        last["content"] = (last["content"] or "") + _text(item.get("content"), f"{where}.content")
    elif kind == "reasoning":
        texts = [_text(item[name], f"{where}.{name}") for name in ("content", "summary") if item.get(name)]
        last["reasoning_content"] = last.get("reasoning_content", "") + "".join(texts)
    elif kind == "function_call":
        name, arguments = item.get("name"), item.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise ClientError(f"{where} must have a name and arguments as JSON text", where)
        name = joined(item.get("namespace"), name)
        last.setdefault("tool_calls", []).append(function_call(item.get("call_id"), name, arguments))
    elif (call := call_of(item)) is not None:
        last.setdefault("tool_calls", []).append(call)
        messages += own_result_of(item)
    else:
        last["content"] = (last["content"] or "") + note(kind)


def _text(content: object, where: str) -> str:
    """Returns the text of a content, with placeholders for pictures."""
    return "".join(part if isinstance(part, str) else part_text(part) for part in _parts(content, where))


def _parts(content: object, where: str) -> list[str | Json]:
    """Returns the texts and pictures of a content."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise ClientError(f"{where} must be a string or a list of parts", where)
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
        raise ClientError(f"{where}: each part must be an object with a type", where)
    return [picture_or_text(part) for part in content]


def _choice(choice: object) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = choice.get("name")
        name = joined(choice.get("namespace"), name) if isinstance(name, str) else name
        return {"type": "function", "function": {"name": name}}
    return choice


def _form(text: object) -> Any:
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": form}
    return form


class _Item:
    """One output item while it grows. `kind`: message, reasoning or function_call; `names`: the function's names in
    the client's form."""

    def __init__(
        self, kind: str, number: int, unique: str, call: CallStart | None = None, names: Json | None = None
    ) -> None:
        self.kind = kind
        self.call = call
        self.names = names or {}
        self.number = number
        self.text: list[str] = []
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        self.id = f"{prefix}_{unique}_{number}"

    def part(self, text: str) -> Json:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def body(self, status: str) -> Json:
        text = "".join(self.text)
        item: Json = {"id": self.id, "type": self.kind, "status": status}
        if self.call is not None:
            return {**item, "call_id": self.call.id, **self.names, "arguments": text}
        content = [self.part(text)] if status != "in_progress" else []
        if self.kind == "reasoning":
            return {**item, "summary": [], "content": content}
        return {**item, "role": "assistant", "content": content}


class ResponseEvents(OpenAIErrors):
    """One response, streamed or whole, made of the same items."""

    def __init__(self, exchange: Exchange, model: str, asked: Json) -> None:
        self._exchange = exchange
        self._model = model
        self._asked = asked
        self._namespaces = namespaces(asked.get("tools"))
        self._stream = exchange.request.stream
        self._sequence = 0
        self._done: list[_Item] = []
        self._item: _Item | None = None
        self._count = 0
        self._status = "in_progress"
        self._unfulfilled: Json = {}

    def start(self) -> bytes:
        created = self._event("response.created", response=self._response())
        return created + self._event("response.in_progress", response=self._response())

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        events = b"".join([self._delta(delta) for delta in chunk.deltas])
        return events if self._stream else b""

    def waiting(self, index: int) -> bytes:
        return self._event("response.in_progress", response=self._response())

    def finished(self, index: int, answer: Completion) -> bytes:
        self._unfulfilled = unfulfilled(self._exchange, answer)
        self._status = "incomplete" if answer.finish_reason == "length" else "completed"
        return self._close(self._status)

    def end(self) -> bytes:
        if not self._stream:
            return orjson.dumps(self._response())
        return self._event(f"response.{self._status}", response=self._response())

    def failure(self, error: ClientError) -> bytes:
        self._status = "failed"
        failed = {**self._response(), "error": {"code": "server_error", "message": str(error)}}
        return self._event("response.failed", response=failed)

    def _delta(self, delta: Delta) -> bytes:
        if isinstance(delta, TextDelta):
            kind = "message" if delta.kind == "content" else "reasoning"
            events = b""
            if self._item is None or self._item.kind != kind:
                events = self._close("completed") + self._open(kind)
            name = "output_text" if kind == "message" else "reasoning_text"
            more: Json = {"logprobs": []} if kind == "message" else {}
            return events + self._grow(delta.text, name, content_index=0, **more)
        if isinstance(delta, CallStart):
            return self._close("completed") + self._open("function_call", delta)
        if isinstance(delta, CallArguments):
            return self._grow(delta.text, "function_call_arguments")
        return self._close("completed")

    def _open(self, kind: str, call: CallStart | None = None) -> bytes:
        unique = self._exchange.turn.completion_id.rpartition("_")[2]
        names = None if call is None else self._names(call.name)
        self._item = item = _Item(kind, self._count, unique, call, names)
        self._count += 1
        body = item.body("in_progress")
        events = self._event("response.output_item.added", output_index=item.number, item=body)
        if call is None:
            events += self._of_item(item, "content_part.added", content_index=0, part=item.part(""))
        return events

    def _names(self, name: str) -> Json:
        """Returns a function's own name, and its namespace if any."""
        if name not in self._namespaces:
            return {"name": name}
        namespace, own = self._namespaces[name]
        return {"namespace": namespace, "name": own}

    def _grow(self, text: str, name: str, **fields: object) -> bytes:
        assert self._item is not None
        self._item.text.append(text)
        return self._of_item(self._item, f"{name}.delta", delta=text, **fields)

    def _close(self, status: str) -> bytes:
        item, self._item = self._item, None
        if item is None:
            return b""
        self._done.append(item)
        text = "".join(item.text)
        if item.call is not None:
            events = self._of_item(
                item, "function_call_arguments.done", arguments=text, name=item.names["name"]
            )
        elif item.kind == "reasoning":
            events = self._of_item(item, "reasoning_text.done", text=text, content_index=0)
        else:
            events = self._of_item(item, "output_text.done", text=text, content_index=0, logprobs=[])
        if item.call is None:
            events += self._of_item(item, "content_part.done", content_index=0, part=item.part(text))
        body = item.body(status)
        return events + self._event("response.output_item.done", output_index=item.number, item=body)

    def _response(self) -> Json:
        exchange = self._exchange
        over = self._status in ("completed", "incomplete")
        response: Json = {
            "id": exchange.turn.completion_id,
            "object": "response",
            "created_at": int(exchange.turn.created_at),
            "status": self._status,
            "model": self._model,
            "output": [item.body(self._item_status(item)) for item in self._done],
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if self._status == "incomplete" else None,
            "parallel_tool_calls": exchange.request.parallel_tool_calls,
            "tool_choice": self._asked.get("tool_choice") or "auto",
            "tools": self._asked.get("tools") or [],
            **{name: self._asked.get(name) for name in _REPEATED},
            "usage": _usage(usage([exchange])) if over else None,
            "session_id": exchange.turn.session_id,
            **self._unfulfilled,
        }
        if exchange.request.return_token_ids and over:
            response["prompt_token_ids"] = exchange.turn.prompt_ids
            response["token_ids"] = exchange.generation.ids
            response["token_log_probs"] = exchange.generation.log_probs
        return response

    def _item_status(self, item: _Item) -> str:
        """Returns the status: only the last item can be incomplete, and never a call."""
        cut = self._status == "incomplete" and item is self._done[-1] and item.call is None
        return "incomplete" if cut else "completed"

    def _of_item(self, item: _Item, event: str, /, **fields: object) -> bytes:
        return self._event(f"response.{event}", item_id=item.id, output_index=item.number, **fields)

    def _event(self, name: str, /, **fields: object) -> bytes:
        data = orjson.dumps({"type": name, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _usage(counts: Json) -> Json:
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": counts["prompt_tokens_details"],
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": counts["completion_tokens_details"],
        "total_tokens": counts["total_tokens"],
    }
