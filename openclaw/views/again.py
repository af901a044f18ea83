"""Answers a stored prompt again with the live weights, or with a version on disk. Nothing is stored."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openclaw.common.messages import with_picture_parts
from openclaw.errors import ClientError
from openclaw.gateway.caller import Caller, RequestKey
from openclaw.gateway.chat_request import chat_request
from openclaw.gateway.exchange import Chunk
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.running import Use
from openclaw.gateway.trial import answers_of
from openclaw.types import Turn
from openclaw.views.source import ViewSource
from openclaw.views.texts import shown_message
from openclaw.views.turn import find

Json = dict[str, Any]

_REPEATED = ("temperature", "top_p", "min_p", "top_k", "frequency_penalty", "presence_penalty")


async def again(source: ViewSource, completion_id: str, version: int | None = None) -> Json:
    """Returns a new answer to a stored prompt: `{"answer", "weight_versions", "finish_reason", "before"}`.

    `before` is the stored answer with its versions.

    Args:
        version: version that answers greedily; None: the live weights sample an answer.

    Raises:
        ClientError: there is no such turn or version (404), no gateway runs or the version is not on disk (409), or the
            engine rejects the request.
    """
    gateway = source.gateway
    if gateway is None:
        raise ClientError(
            "this run has ended: restart it to sample answers",
            code="not_serving",
            status=409,
        )
    turn = await source.in_thread(lambda: find(source.store, completion_id))
    if any(message.get("format") == "raw" for message in turn.messages):
        raise ClientError(
            "text completions cannot be repeated; only chat turns can", code="not_a_chat", status=409
        )
    if turn.pictures and version is not None:
        raise ClientError("a version cannot answer a prompt with pictures", code="not_a_chat", status=409)
    async with source.tries, _used(source, gateway, turn):
        answers = await (
            _sampled(gateway, turn) if version is None else _greedy(source, gateway, turn, version)
        )
    return {
        "object": "try",
        "completion_id": completion_id,
        **answers,
        "before": {
            "answer": shown_message(turn.response_message),
            "weight_versions": [span[0] for span in turn.version_spans],
        },
    }


@asynccontextmanager
async def _used(source: ViewSource, gateway: Gateway, turn: Turn) -> AsyncIterator[None]:
    """Lets deletions of the turn wait for the end of the context. Raises ClientError (404) if it is deleted already."""
    people = set() if turn.person is None else {turn.person}
    with gateway.uses.during(Use(people, turn.session_id)):
        await source.in_thread(lambda: find(source.store, turn.completion_id))
        yield


async def _sampled(gateway: Gateway, turn: Turn) -> Json:
    request = chat_request(_body(turn), gateway.sees)
    caller = Caller(None, None, "side", False, False, RequestKey(uuid.uuid4().bytes, False))
    exchange = await gateway.prepare(request, caller, "again-")
    answer = await exchange.run(_discard)
    return {
        "answer": shown_message(answer.message()),
        "weight_versions": [span[0] for span in exchange.generation.spans],
        "finish_reason": answer.finish_reason,
    }


async def _greedy(source: ViewSource, gateway: Gateway, turn: Turn, version: int) -> Json:
    """Returns the greedy answer of a version to the exact token ids of the stored prompt."""
    known = await source.in_thread(source.store.versions.all)
    likeliest = next((one for one in known if one.version == version), None)
    if likeliest is None:
        raise ClientError(f"there is no version {version}", "version", "not_found", 404)
    [answer] = await answers_of(gateway, likeliest, [turn.prompt_ids], tools=turn.tools is not None)
    return {"answer": shown_message(answer), "weight_versions": [version], "finish_reason": "greedy"}


def _body(turn: Turn) -> Json:
    """Returns the stored request with its sampling parameters, but without its seed."""
    body: Json = {"messages": with_picture_parts(turn.messages), "tools": turn.tools}
    body |= {name: turn.sampling[name] for name in _REPEATED if name in turn.sampling}
    if "max_new_tokens" in turn.sampling:
        body["max_tokens"] = turn.sampling["max_new_tokens"]
    thinking = turn.sampling.get("enable_thinking")
    if isinstance(thinking, bool):
        body["chat_template_kwargs"] = {"enable_thinking": thinking}
    elif isinstance(thinking, dict):
        body["chat_template_kwargs"] = thinking
    return body


async def _discard(chunk: Chunk) -> None:
    """Discards a chunk: only the complete answer is returned."""
