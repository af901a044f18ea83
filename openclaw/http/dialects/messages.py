"""POST /v1/messages: Anthropic's dialect, over the same path as chats.

Without `thinking` the model does not think, as Anthropic has it. A tool_use block is sent once its call is whole:
clients of this dialect take a block that has ended for a call.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.common.messages import content_of
from openclaw.errors import ClientError
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import chat_request
from openclaw.gateway.fields import function_call, function_tools, parse_body
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client
from openclaw.http.dialects.messages_wire import MessageEvents, error_body
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


@router.post("/v1/messages", openapi_extra=ANTHROPIC)
async def create(request: Request) -> Response:
    return await _answered(request, _create)


@router.post("/v1/messages/count_tokens", openapi_extra=COUNT_TOKENS)
async def count_tokens(request: Request) -> Response:
    return await _answered(request, _count)


async def _answered(request: Request, handle: Callable[[Request, Json], Awaitable[Response]]) -> Response:
    """Errors have this dialect's form too."""
    try:
        check_client(request, request.app.state.gateway.settings)
        return await handle(request, parse_body(await request.body()))
    except ClientError as error:
        body = orjson.dumps(error_body(error))
        return Response(body, error.status, media_type="application/json")


async def _create(request: Request, body: Json) -> Response:
    gateway: Gateway = request.app.state.gateway
    if body.get("max_tokens") is None:
        raise ClientError("max_tokens: it must be given", "max_tokens")
    translated = chat_body(body)
    if translated["messages"][-1]["role"] == "assistant":
        message = "messages: the last one is the assistant's; an answer that was begun is not continued here"
        raise ClientError(message, "messages", "unsupported_value")
    checked = chat_request(translated)
    caller = Caller.of(request.headers, translated, None, gateway.settings.default_turn_type)
    exchanges = await prepare_all(gateway, checked, caller, "msg_")
    events = MessageEvents(exchanges[0], gateway.model_name, checked.stream)
    return AnswerResponse(request, exchanges, events, checked.stream)


async def _count(request: Request, body: Json) -> Response:
    gateway: Gateway = request.app.state.gateway
    count = await gateway.count(chat_request(chat_body(body)))
    return Response(orjson.dumps({"input_tokens": count}), media_type="application/json")


def chat_body(body: Json) -> Json:
    """The chat request that asks for the same. Raises ClientError."""
    found: Json = {name: body[name] for name in _SAME if name in body}
    found["messages"] = [*_system(body.get("system")), *_messages(body.get("messages"))]
    found["stop"] = body.get("stop_sequences")
    found["tools"] = function_tools(body.get("tools"), _function)
    found["tool_choice"], found["parallel_tool_calls"] = _choice(body.get("tool_choice"))
    found["chat_template_kwargs"] = {"enable_thinking": _thinks(body.get("thinking"))}
    metadata = body.get("metadata")
    person = _person(metadata.get("user_id")) if isinstance(metadata, dict) else None
    return found if person is None else {**found, "user": person}


def _person(user_id: object) -> object:
    """Who is talking. Claude Code writes a JSON object there, with ids of the device, the session and, of one who is
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
    found: list[Json] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            raise ClientError(f"{where}.role must be user or assistant", f"{where}.role")
        content, where = message.get("content"), f"{where}.content"
        if isinstance(content, str):
            found.append({"role": role, "content": content})
        else:
            blocks = _blocks(content, where)
            found += [_assistant(blocks, where)] if role == "assistant" else _user(role, blocks, where)
    return found


def _blocks(content: Any, where: str) -> list[Json]:
    fits = isinstance(content, list) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in content
    )
    if not fits:
        raise ClientError(f"{where} must be a string or a list of blocks with a type", where)
    blocks: list[Json] = content
    return blocks


def _user(role: str, blocks: list[Json], where: str) -> list[Json]:
    """Tool results are messages of their own, before what the user says beside them."""
    found: list[Json] = []
    texts: list[str] = []
    for index, block in enumerate(blocks):
        if block["type"] == "tool_result":
            content = block.get("content")
            results = [] if content is None else _texts(content, f"{where}[{index}].content")
            id_ = str(block.get("tool_use_id"))
            found.append({"role": "tool", "tool_call_id": id_, "content": content_of(results)})
        else:
            texts += _texts([block], f"{where}[{index}]")
    return [*found, {"role": role, "content": content_of(texts)}] if texts or not found else found


def _assistant(blocks: list[Json], where: str) -> Json:
    message: Json = {"role": "assistant", "content": ""}
    for index, block in enumerate(blocks):
        kind = block["type"]
        if kind == "tool_use":
            name, given = block.get("name"), block.get("input")
            if not isinstance(name, str) or not isinstance(given, dict):
                raise ClientError(
                    f"{where}[{index}] must have a name and an input object", f"{where}[{index}]"
                )
            call = function_call(block.get("id"), name, json.dumps(given, ensure_ascii=False))
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
    return "".join(_texts(content, where))


def _texts(content: object, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    texts = []
    for block in _blocks(content, where):
        if block["type"] != "text" or not isinstance(block.get("text"), str):
            raise ClientError(f"{where}: this model reads text only, not {block['type']!r}", where)
        texts.append(block["text"])
    return texts


def _function(tool: object, where: str) -> Json:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise ClientError(f"{where} must be an object with a name", where)
    if tool.get("type") not in (None, "custom"):
        raise ClientError(f"{where}: tools of type {tool['type']!r} are Anthropic's own", where)
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {}}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    return function


def _choice(choice: Any) -> tuple[Any, bool]:
    """OpenAI's tool_choice and parallel_tool_calls."""
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
