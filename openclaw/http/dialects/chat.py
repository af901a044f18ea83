"""POST /v1/chat/completions: streamed or not, one path."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import chat_request, parse_body
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client
from openclaw.http.dialects.chat_wire import Chunks, Whole
from openclaw.http.openapi import CHAT
from openclaw.http.response import AnswerResponse, prepare_all

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
    caller = Caller.of(request.headers, body, path_session, gateway.settings.default_turn_type)
    if caller.done and caller.scope and not body.get("messages"):
        if gateway.recorder:
            await gateway.recorder.end_session(caller.scope)
        ended = {"object": "session", "session_id": caller.scope, "session_done": True}
        return Response(orjson.dumps(ended), media_type="application/json")
    checked = chat_request(body)
    exchanges = await prepare_all(gateway, checked, caller, "chatcmpl-")
    dialect = Chunks if checked.stream else Whole
    answer = dialect(exchanges, gateway.model_name, gateway.tokenizer)
    return AnswerResponse(request, exchanges, answer, checked.stream)
