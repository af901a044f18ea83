"""Versions of the weights: what the gate's routes say of them, else what the store knows."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.requests import Request

from openclaw.errors import ClientError
from openclaw.page.source import PageSource, source_of
from openclaw.types import WeightVersion

Json = dict[str, Any]

ROUTE = "/admin/versions"
TIMEOUT_SECONDS = 120.0
SHOWN = 200
"""Newest versions in the view."""
NOT_THERE = (404, 405)
EMPTY: Json = {
    "parent": None, "status": "", "created_at": None, "reason": None, "measurements": {}, "rollout_id": None,
    "on_disk": True,
}  # fmt: skip
"""A version of which nothing is told."""


async def versions(request: Request) -> Json:
    """`{"live", "pinned", "versions": [...], "switchable"}`, newest first; `switchable`: whether this server can go back
    to an older one."""
    source = source_of(request)
    answer = await _ask(request, "GET", ROUTE) if source.gateway is not None else None
    if answer is not None and answer.status_code == 200:
        found: Json = answer.json()
        given = found.get("versions") or found.get("data") or []
        rows = [{**EMPTY, **one, "reason": one.get("reason") or one.get("undone")} for one in given]
        rows.sort(key=lambda one: int(one["version"]), reverse=True)
        told = {"object": "list", "live": found.get("live"), "pinned": found.get("pinned")}
        return {**told, "versions": rows[:SHOWN], "switchable": source.writable}
    return await source.in_thread(lambda: _of_store(source))


async def roll_back(request: Request, version: int, drop_turns: bool) -> Json:
    """Goes back to an older version. Raises ClientError where this server cannot, or refuses."""
    source = source_of(request)
    if source.gateway is None:
        raise ClientError("a finished run serves no version", code="read_only", status=409)
    body = {"version": version, "drop_turns": drop_turns}
    answer = await _ask(request, "POST", f"{ROUTE}/rollback", body)
    if answer.status_code in NOT_THERE:
        answer = await _ask(request, "POST", f"{ROUTE}/{version}/rollback", {"drop_turns": drop_turns})
    if answer.status_code in NOT_THERE:
        message = "this server has no rollback: restart the run from an older checkpoint instead"
        raise ClientError(message, code="no_rollback", status=409)
    if answer.status_code >= 400:
        raise ClientError(_reason(answer), code="rollback_refused", status=answer.status_code)
    told: Json = answer.json()
    return told


async def _ask(request: Request, method: str, path: str, body: Json | None = None) -> httpx.Response:
    """A request to a route of this very app, in the administrator's name."""
    key = source_of(request).admin_key
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app=request.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers, timeout=TIMEOUT_SECONDS
    ) as client:
        return await client.request(method, path, json=body)


def _of_store(source: PageSource) -> Json:
    if source.recorder is None:
        return {"object": "list", "live": None, "pinned": None, "versions": [], "switchable": False}
    store = source.store
    rows = [_row(one) for one in reversed(store.versions()[-SHOWN:])]
    live = store.live_version()
    return {"object": "list", "live": live, "pinned": None, "versions": rows, "switchable": False}


def _row(one: WeightVersion) -> Json:
    details: Json = getattr(one, "details", None) or {}
    return {
        "version": one.version,
        "parent": one.parent,
        "status": str(one.status),
        "created_at": one.created_at,
        "reason": details.get("undone") or details.get("reason"),
        "measurements": details.get("measurements") or {},
        "rollout_id": one.rollout_id,
        "on_disk": one.path is not None,
    }


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300] or "no reason was given"
