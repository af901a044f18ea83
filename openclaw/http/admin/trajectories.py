"""POST /admin/trajectories, /v1/trajectories: turns with their training data.

Token ids, log-probs and weight versions are those of sampling, for a trainer or an environment on another machine.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.errors import ClientError
from openclaw.gateway.caller import LONGEST_NAME, asker_named
from openclaw.gateway.chat_request import boolean, integer, parse_body, string
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_admin, check_client
from openclaw.store import RolloutStore
from openclaw.store.rights import ADMINISTRATOR, Asker
from openclaw.types import Turn

router = APIRouter()

MOST_SESSIONS = 256
MOST_TURNS = 1000
_FIELDS = (
    "completion_id", "turn_index", "turn_type", "parent_id", "person", "group_id", "task_id", "source", "state",
    "state_reason", "finish_reason", "created_at", "prompt_ids", "completion_ids", "completion_log_probs",
    "version_spans", "sampling", "tokenizer_fingerprint", "template_fingerprint", "policy_id",
)  # fmt: skip
_CONTENT_FIELDS = ("messages", "tools", "response_message", "next_state")


@router.post("/admin/trajectories")
async def all_trajectories(request: Request) -> Response:
    """Returns turns of sessions: `{"data": [{"session_id", "turns"}], "left": [ids of sessions that exceed the
    limit]}`.

    The body is `{"session_ids": [...] or "group", "content": bool, "limit": turns}`. An unknown session has no turns.
    """
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    return await _read(gateway, await request.body(), ADMINISTRATOR)


@router.post("/v1/trajectories")
async def own_trajectories(request: Request) -> Response:
    """Returns turns of the client, which needs a named key (OPENCLAW_API_KEYS). Raises ClientError (403)."""
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    asker = asker_named(request.headers, {}, gateway.settings)
    if asker.person is None:
        message = "/v1/trajectories requires a named key (OPENCLAW_API_KEYS); administrators use /admin/trajectories"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")
    return await _read(gateway, await request.body(), asker)


async def _read(gateway: Gateway, data: bytes, asker: Asker) -> Response:
    body = parse_body(data)
    sessions, group = _session_ids(body), string(body, "group")
    if (sessions is None) == (group is None):
        raise ClientError("exactly one of session_ids and group is required", "session_ids")
    content, limit = boolean(body, "content"), integer(body, "limit", 1, MOST_TURNS) or MOST_TURNS
    if gateway.recorder is None:
        raise ClientError("this server does not record turns", code="not_recording", status=409)
    content_json = await asyncio.to_thread(
        _trajectories_json,
        gateway.recorder.store,
        sessions,
        group,
        limit,
        asker,
        _FIELDS + _CONTENT_FIELDS if content else _FIELDS,
    )
    return Response(content_json, media_type="application/json", headers={"cache-control": "no-store"})


def _trajectories_json(
    store: RolloutStore,
    sessions: list[str] | None,
    group: str | None,
    limit: int,
    asker: Asker,
    names: tuple[str, ...],
) -> bytes:
    asked = store.sessions.of_group(group or "", asker.person, asker) if sessions is None else sessions
    turns, left = store.turns.of_sessions(asked, limit, asker.person, asker)
    data = [{"session_id": id_, "turns": [_turn(one, names) for one in turns[id_]]} for id_ in turns]
    return orjson.dumps({"object": "list", "data": data, "left": left})


def _turn(turn: Turn, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in names}


def _session_ids(body: dict[str, Any]) -> list[str] | None:
    """Returns the requested session ids without duplicates; None if a group is requested. Raises ClientError."""
    ids = body.get("session_ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not 0 < len(ids) <= MOST_SESSIONS:
        raise ClientError(f"session_ids must be a list of 1 to {MOST_SESSIONS} ids", "session_ids")
    for number, id_ in enumerate(ids):
        if not isinstance(id_, str) or not 0 < len(id_) <= LONGEST_NAME or not id_.isprintable():
            message = f"session_ids[{number}] must be a string of 1 to {LONGEST_NAME} printable characters"
            raise ClientError(message, "session_ids")
    return list(dict.fromkeys(ids))
