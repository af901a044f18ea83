"""GET and DELETE /v1/memory, /admin/memory: the remembered preferences that are added to people's prompts (--memory)."""

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
from openclaw.gateway.recorder import Recorder
from openclaw.http.auth import check_admin, check_client
from openclaw.store.memory import Wish
from openclaw.store.rights import ADMINISTRATOR, Asker

router = APIRouter()

LARGEST_ID = 2**31
SHOWN = ("id", "text", "created_at", "in_prompt", "held_by", "held_at", "details")


@router.get("/admin/memory")
async def all_memory(request: Request, person: str | None = None) -> Response:
    """Returns the newest 200 preferences of one person or of all people, newest first.

    `in_prompt`: whether the preference is added to prompts. `held_by`: the version that answers accordingly without it.
    """
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    return await _list_response(_recorder(gateway), person, ADMINISTRATOR, ("person", *SHOWN))


@router.delete("/admin/memory/{wish_id}")
async def forget(request: Request, wish_id: str, person: str | None = None) -> Response:
    """Deletes one preference, see `MemoryTable.forget`. Raises ClientError (404) if the person does not have it."""
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    return await _deletion_response(_recorder(gateway), wish_id, ADMINISTRATOR, person)


@router.get("/v1/memory")
async def own_memory(request: Request) -> Response:
    """Returns the preferences of the client, which needs a named key (OPENCLAW_API_KEYS). Raises ClientError (403)."""
    gateway: Gateway = request.app.state.gateway
    asker = _named_client(request, gateway)
    return await _list_response(_recorder(gateway), asker.person, asker, SHOWN)


@router.delete("/v1/memory/{wish_id}")
async def forget_own(request: Request, wish_id: str) -> Response:
    """Deletes one preference of the client. Raises ClientError (403, 404)."""
    gateway: Gateway = request.app.state.gateway
    return await _deletion_response(_recorder(gateway), wish_id, _named_client(request, gateway))


def _named_client(request: Request, gateway: Gateway) -> Asker:
    """Returns the client of a named key. Raises ClientError: 401 without a valid key, 403 for a key without a name."""
    check_client(request, gateway.settings)
    asker = asker_named(request.headers, {}, gateway.settings)
    if asker.person is None:
        message = "/v1/memory requires a named key (OPENCLAW_API_KEYS); administrators use /admin/memory"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")
    return asker


def _recorder(gateway: Gateway) -> Recorder:
    """Returns the recorder. Raises ClientError (409) if turns are not recorded."""
    if gateway.recorder is None:
        raise ClientError("this server does not record turns", code="not_recording", status=409)
    return gateway.recorder


async def _list_response(
    recorder: Recorder, person: str | None, asker: Asker, names: tuple[str, ...]
) -> Response:
    wishes = await asyncio.to_thread(recorder.store.memory.wishes, person, asker=asker)
    return _json({"object": "list", "data": [_shown(wish, names) for wish in wishes]})


def _shown(wish: Wish, names: tuple[str, ...]) -> dict[str, Any]:
    known = asdict(wish)
    return {name: known[name] for name in names}


async def _deletion_response(
    recorder: Recorder, wish_id: str, asker: Asker, person: str | None = None
) -> Response:
    known = wish_id.isascii() and wish_id.isdecimal() and len(wish_id) < 11 and int(wish_id) < LARGEST_ID
    if not known or not await recorder.forget(int(wish_id), asker, person):
        raise ClientError(
            f"there is no remembered preference with id {wish_id[:20]!r}", "id", "not_found", 404
        )
    return _json({"object": "wish", "id": int(wish_id), "forgotten": True})


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
