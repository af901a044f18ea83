"""Routes for `python -m openclaw.progress`: stored reports, preferences, and answers of version 0.

With `?adapter=NAME` they are about a trained adapter.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.common.messages import text_of
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import chat_request, integer, parse_body
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.trial import MOST_TOKENS, TrialAnswer, first_answers
from openclaw.http.admin.versions import adapter_named
from openclaw.http.auth import check_admin
from openclaw.http.browser import check_reader
from openclaw.views.progress import progress, recorded, save_report
from openclaw.views.source import source_of

router = APIRouter()

MOST_PROMPTS = 64


@router.get("/admin/progress")
async def get_progress(request: Request) -> Response:
    """Returns `{"live", "wishes", "reports"}`: the live version, the preferences of people, and the stored reports."""
    check_reader(request)
    source, adapter = source_of(request), adapter_named(request)
    return _json(await source.in_thread(lambda: progress(source, adapter)))


@router.get("/admin/progress/recorded")
async def get_recorded(request: Request) -> Response:
    """Returns the answers of version 0 in the newest report that has them: `{"time", "max_tokens", "answers"}`."""
    check_reader(request)
    source, adapter = source_of(request), adapter_named(request)
    return _json(await source.in_thread(lambda: recorded(source, adapter)))


@router.post("/admin/progress")
async def keep_report(request: Request) -> Response:
    """Saves a report in the run folder. Raises ClientError (409) if the server has none."""
    check_admin(request, request.app.state.gateway.settings)
    report, source, adapter = parse_body(await request.body()), source_of(request), adapter_named(request)
    path = await source.in_thread(lambda: save_report(source, report, adapter))
    return _json({"object": "progress", "kept": path.name})


@router.post("/admin/progress/first")
async def ask_first(request: Request) -> Response:
    """Returns greedy answers of version 0 to `{"prompts": [request bodies], "max_tokens": N}`, which are not stored.

    The response is `{"answers": [{"text", "log_prob", "ended"}]}`. Serving continues meanwhile. Raises ClientError
    (409) if no engine can load version 0.
    """
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    body = parse_body(await request.body())
    entries = body.get("prompts")
    entries = entries if isinstance(entries, list) else []
    requests = [one for one in entries if isinstance(one, dict)]
    if not 1 <= len(requests) <= MOST_PROMPTS or len(requests) != len(entries):
        raise ClientError(f"prompts must be a list of 1 to {MOST_PROMPTS} request bodies", "prompts")
    most = integer(body, "max_tokens", 1, MOST_TOKENS) or MOST_TOKENS
    prompts = [await gateway.prompt_ids(chat_request(one)) for one in requests]
    versions = source_of(request).store.versions
    known = await asyncio.to_thread(versions.all)
    answers = await first_answers(gateway, known, prompts, most)
    return _json({"answers": [_shown(one) for one in answers]})


def _shown(answer: TrialAnswer) -> dict[str, Any]:
    return {"text": text_of(answer.message), "log_prob": answer.log_prob, "ended": answer.ended}


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
