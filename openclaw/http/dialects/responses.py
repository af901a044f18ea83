"""POST /v1/responses: OpenAI's Responses dialect, over the same path as chats.

`previous_response_id` is found in the store, so it works where turns are recorded. `store: false` changes nothing:
whether a turn is recorded is the server's choice, and `X-Train: off` keeps it out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.common.messages import content_of
from openclaw.errors import ClientError
from openclaw.gateway.caller import Caller, person_named
from openclaw.gateway.chat_request import chat_request
from openclaw.gateway.fields import function_call, parse_body
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client
from openclaw.http.dialects.responses_tools import chat_tools, joined
from openclaw.http.dialects.responses_wire import ResponseEvents
from openclaw.http.openapi import RESPONSE
from openclaw.http.response import AnswerResponse, prepare_all
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
"""Mark of a system message that a later request does not inherit."""


@router.post("/v1/responses", openapi_extra=RESPONSE)
async def create(request: Request) -> Response:
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    body = parse_body(await request.body())
    previous = await _previous(gateway, body.get("previous_response_id"), person_named(request.headers, body))
    translated = chat_body(body, previous)
    checked = chat_request(translated)
    caller = Caller.of(request.headers, translated, None, gateway.settings.default_turn_type)
    if previous is not None and caller.scope is None:
        caller = replace(caller, scope=previous.session_id)
    exchanges = await prepare_all(gateway, checked, caller, "resp_")
    events = ResponseEvents(exchanges[0], gateway.model_name, body)
    return AnswerResponse(request, exchanges, events, checked.stream)


async def _previous(gateway: Gateway, response_id: object, person: str | None) -> Turn | None:
    """The turn to continue; never another person's. Raises ClientError when there is none."""
    if response_id is None:
        return None
    turn = None
    if isinstance(response_id, str) and response_id.isprintable() and gateway.recorder is not None:
        turn = await asyncio.to_thread(gateway.recorder.store.turns.get_by_completion, response_id)
    if turn is None or (person is not None and turn.person not in (None, person)):
        message = (
            f"previous_response_id: no response {response_id!r} is stored here; send its messages instead"
        )
        raise ClientError(message, "previous_response_id", "previous_response_not_found", 404)
    return turn


def chat_body(body: Json, previous: Turn | None) -> Json:
    """The chat request that asks for the same. Raises ClientError."""
    for name in ("background", "conversation", "prompt"):
        if body.get(name):
            raise ClientError(f"{name}: this server does not have it", name, "unsupported_value")
    _check_included(body)
    found: Json = {name: body[name] for name in _SAME if name in body}
    found["messages"] = [*_history(body.get("instructions"), previous), *_messages(body.get("input"))]
    found["max_completion_tokens"] = body.get("max_output_tokens")
    found["tools"] = chat_tools(body.get("tools"))
    found["tool_choice"] = _choice(body.get("tool_choice"))
    found["response_format"] = _form(body.get("text"))
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort is not None:
        options = (
            {"enable_thinking": False} if effort in ("none", "minimal") else {"reasoning_effort": effort}
        )
        given = found.get("chat_template_kwargs")
        found["chat_template_kwargs"] = {**options, **(given if isinstance(given, dict) else {})}
    return found


def _check_included(body: Json) -> None:
    """Raises ClientError for what a client would wait for in vain. Other things to include (results of searches,
    encrypted reasoning) belong to items that answers of this server do not have."""
    include = body.get("include") or []
    if not isinstance(include, list) or not all(isinstance(one, str) for one in include):
        raise ClientError("include must be a list of strings", "include")
    for name, asked in (("include", _LOG_PROBS in include), ("top_logprobs", bool(body.get("top_logprobs")))):
        if asked:
            message = f"{name}: responses come without log-probs; /v1/chat/completions has logprobs and top_logprobs"
            raise ClientError(message, name, "unsupported_value")


def _history(instructions: object, previous: Turn | None) -> list[Json]:
    messages: list[Json] = []
    if previous is not None:
        messages = [*previous.messages, previous.response_message]
        messages = [message for message in messages if message.get("format") != _INSTRUCTIONS]
    if instructions is None:
        return messages
    if not isinstance(instructions, str):
        raise ClientError("instructions must be a string", "instructions")
    return [{"role": "system", "content": instructions, "format": _INSTRUCTIONS}, *messages]


def _messages(given: object) -> list[Json]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise ClientError("input must be a string or a list with at least one item", "input")
    found: list[Json] = []
    for index, item in enumerate(given):
        where = f"input[{index}]"
        if not isinstance(item, dict):
            raise ClientError(f"{where} must be an object", where)
        kind = item.get("type", "message")
        if kind == "function_call_output":
            output = content_of(_texts(item.get("output"), f"{where}.output"))
            found.append({"role": "tool", "tool_call_id": str(item.get("call_id")), "content": output})
        elif kind == "message" and item.get("role") != "assistant":
            content = content_of(_texts(item.get("content"), f"{where}.content"))
            found.append({"role": item.get("role"), "content": content})
        else:
            _add_to_answer(found, kind, item, where)
    return found


def _add_to_answer(found: list[Json], kind: str, item: Json, where: str) -> None:
    """Reasoning, text and calls that follow each other are one assistant message."""
    last = found[-1] if found and found[-1]["role"] == "assistant" else None
    if last is None or (kind == "reasoning" and (last["content"] or "tool_calls" in last)):
        last = {"role": "assistant", "content": None}
        found.append(last)
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
    else:
        raise ClientError(f"{where}: items of type {kind!r} are not known here", where)


def _text(content: object, where: str) -> str:
    return "".join(_texts(content, where))


def _texts(content: object, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise ClientError(f"{where} must be a string or a list of parts", where)
    texts = []
    for part in content:
        known = isinstance(part, dict)
        text = part.get("refusal" if part.get("type") == "refusal" else "text") if known else None
        if not isinstance(text, str):
            kind = part.get("type") if known else None
            raise ClientError(f"{where}: this model reads text parts only, not {kind!r}", where)
        texts.append(text)
    return texts


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
