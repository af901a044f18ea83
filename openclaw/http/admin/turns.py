"""Routes for the status of turns: score, reason, training state and version.

They return no conversation text, except in hints and reasons.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.errors import ClientError
from openclaw.gateway.caller import asker_named
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_admin, check_client
from openclaw.store.status import TurnStatus

router = APIRouter()

MOST_TURNS = 200


@router.get("/v1/turns/{completion_id}")
async def turn(request: Request, completion_id: str) -> Response:
    """Returns the status of the turn with this completion id; `?user=` names the person, as in chat requests.

    Raises ClientError (404) if the turn is not recorded or belongs to another key.
    """
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    asker = asker_named(request.headers, request.query_params, gateway.settings)
    status = None
    if gateway.recorder is not None and completion_id.isprintable():
        status = await asyncio.to_thread(gateway.recorder.store.status.of_completion, completion_id, asker)
    if status is None:
        message = f"there is no recorded turn with completion_id {completion_id!r}"
        raise ClientError(message, "completion_id", "not_found", 404)
    return _json(_shown(status))


@router.get("/admin/turns")
async def newest(request: Request, session_id: str | None = None, limit: str = "20") -> Response:
    """Returns the newest turns, newest first: `{"data": [...]}`; `limit` is 1 to 200."""
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    if not limit.isdecimal() or len(limit) > 3 or not 1 <= int(limit) <= MOST_TURNS:
        raise ClientError(f"limit must be a whole number from 1 to {MOST_TURNS}", "limit")
    statuses: list[TurnStatus] = []
    if gateway.recorder is not None and (session_id is None or session_id.isprintable()):
        statuses = await asyncio.to_thread(gateway.recorder.store.status.recent, int(limit), session_id)
    return _json({"object": "list", "data": [_shown(status) for status in statuses]})


def _shown(status: TurnStatus) -> dict[str, Any]:
    return {"object": "turn", **asdict(status)}


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
