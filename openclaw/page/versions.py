"""Data about weight versions, from the administration routes of this server, or from the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from openclaw.common.messages import text_of
from openclaw.errors import ClientError
from openclaw.http.auth import INSIDE
from openclaw.store import RolloutStore
from openclaw.types import Message, VersionStatus, WeightVersion
from openclaw.versions.comparison import compare_versions
from openclaw.views.lessons import NOTHING
from openclaw.views.source import ViewSource, source_of

Json = dict[str, Any]

ROUTE = "/admin/versions"
TIMEOUT_SECONDS = 600.0
SHOWN = 200
"""Number of newest versions in the list."""
LOOKED_AT, OPENINGS, LONGEST_OPENING = 40, 3, 300
"""Newest turns searched for suggested prompts; number of suggestions; their most characters."""
ROUTE_MISSING = (404, 405)
EMPTY: Json = {
    "parent": None, "status": "", "created_at": None, "reason": None, "measurements": {}, "rollout_id": None,
    "on_disk": True, "quarantined": 0,
}  # fmt: skip
"""Default values of a version, for fields that the server does not return."""


async def versions(request: Request) -> Json:
    """Returns `{"live", "pinned", "versions": [...], "switchable", "adapters"}`, newest version first.

    `switchable`: whether this server can roll back. `adapters`: live version of each trained adapter, by name.
    """
    source = source_of(request)
    known = source.store.versions.of_adapters if source.recorder is not None else dict
    return {**await _versions(request, source), "adapters": await source.in_thread(known)}


async def _versions(request: Request, source: ViewSource) -> Json:
    answer = await _ask(request, "GET", ROUTE) if source.gateway is not None else None
    if answer is not None and answer.status_code == 200:
        content: Json = answer.json()
        listed = content.get("versions") or content.get("data") or []
        rows = [{**EMPTY, **one, "reason": _why(one)} for one in listed]
        rows.sort(key=lambda one: int(one["version"]), reverse=True)
        summary = {"object": "list", "live": content.get("live"), "pinned": content.get("pinned")}
        shown = await source.in_thread(lambda: _with_lessons(source, rows[:SHOWN]))
        return {**summary, "versions": shown, "switchable": source.writable}
    return await source.in_thread(lambda: _of_store(source))


async def roll_back(request: Request, version: int, drop_turns: bool) -> Json:
    """Rolls back to an older version. Raises ClientError if this server cannot, or rejects the version."""
    source = source_of(request)
    if source.gateway is None:
        raise ClientError("this run has ended, so no version can be switched", code="read_only", status=409)
    body = {"version": version, "drop_turns": drop_turns}
    answer = await _ask(request, "POST", f"{ROUTE}/rollback", body)
    if answer.status_code in ROUTE_MISSING:
        answer = await _ask(request, "POST", f"{ROUTE}/{version}/rollback", {"drop_turns": drop_turns})
    if answer.status_code in ROUTE_MISSING:
        message = "this server does not support rollback: restart the run from an older checkpoint instead"
        raise ClientError(message, code="no_rollback", status=409)
    return _content_of(answer, "rollback_refused")


async def pin(request: Request, version: int | None) -> Json:
    """Pins a version, which pauses training; None unpins. Raises ClientError."""
    if source_of(request).gateway is None:
        raise ClientError("this run has ended, so no version can be switched", code="read_only", status=409)
    path = f"{ROUTE}/unpin" if version is None else f"{ROUTE}/{version}/pin"
    return _content_of(await _ask(request, "POST", path, {}), "pin_refused")


async def settle_quarantine(request: Request, version: int, release: bool) -> int:
    """Makes the quarantined turns of a version ready for training, or drops them. Returns their number.

    Raises ClientError.
    """
    if source_of(request).gateway is None:
        raise ClientError(
            "this run has ended, so its quarantined turns cannot be changed", code="read_only", status=409
        )
    how = ("POST", f"{ROUTE}/{version}/release") if release else ("DELETE", f"{ROUTE}/{version}/quarantine")
    answer = _content_of(await _ask(request, *how), "quarantine_refused")
    return int(answer["released" if release else "deleted"])


async def difference(request: Request, a: int, b: int, prompts: list[str]) -> Json:
    """Returns the difference of two versions, with `answers` of both if there are prompts. Raises ClientError."""
    source = source_of(request)
    if source.gateway is None:
        if prompts:
            raise ClientError(
                "this run has ended, so no version can answer prompts", code="read_only", status=409
            )
        comparison = await source.in_thread(lambda: compare_versions(source.store, source.run_dir, a, b))
        if comparison is None:
            raise ClientError(f"version {a} or version {b} does not exist", "a", "not_found", 404)
        return comparison
    if not prompts:
        return _content_of(await _ask(request, "GET", f"{ROUTE}/diff?a={a}&b={b}"), "diff_refused")
    async with source.tries:
        body = {"a": a, "b": b, "prompts": prompts}
        return _content_of(await _ask(request, "POST", f"{ROUTE}/diff", body), "diff_refused")


def openings(store: RolloutStore) -> list[str]:
    """Returns the first messages of the newest conversations, as suggested prompts for a comparison."""
    texts = [_opening(turn.messages) for turn in store.gate_turns.newest(LOOKED_AT)]
    return list(dict.fromkeys(text for text in texts if 0 < len(text) <= LONGEST_OPENING))[:OPENINGS]


def _opening(messages: list[Message]) -> str:
    """Returns the first user message on one line; "" without one."""
    asked = next((one for one in messages if one.get("role") == "user"), None)
    return "" if asked is None else " ".join(text_of(asked).split())


def on_disk(store: RolloutStore) -> list[int]:
    """Returns the versions whose weights are on disk, newest first."""
    known = store.versions.all()[-SHOWN:]
    return [one.version for one in reversed(known) if one.path is not None and Path(one.path).is_dir()]


def rollback_text(version: int, answer: Json) -> str:
    """Returns a sentence about the result of a rollback, from the driver's answer."""
    if answer.get("status") == "waiting":
        return f"Version {version} goes live as soon as the driver responds."
    if answer.get("status") == "serving":
        undone = "Newer versions are undone after the current training step"
        return f"Version {version} is live again. {undone}, whose result is discarded."
    return f"Version {version} is live again. Newer versions are undone."


def pinned(version: int | None, answer: Json) -> str:
    """Returns a sentence about the result of pinning or unpinning a version."""
    if answer.get("status") == "waiting":
        return "This takes effect as soon as the driver responds."
    if answer.get("status") == "serving":
        return f"Version {version} is live. It is pinned after the current training step."
    return "Training continues." if version is None else f"Version {version} is pinned."


def _content_of(answer: httpx.Response, code: str) -> Json:
    """Returns the JSON of a response. Raises ClientError if the route rejected the request."""
    if answer.status_code >= 400:
        raise ClientError(_reason(answer), code=code, status=answer.status_code)
    content: Json = answer.json()
    return content


async def _ask(request: Request, method: str, path: str, body: Json | None = None) -> httpx.Response:
    """Sends a request to a route of this application as the administrator."""
    key = source_of(request).admin_key
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await request.app({**scope, INSIDE: True}, receive, send)

    transport = httpx.ASGITransport(app=inside)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers, timeout=TIMEOUT_SECONDS
    ) as client:
        return await client.request(method, path, json=body)


def _of_store(source: ViewSource) -> Json:
    if source.recorder is None:
        return {"object": "list", "live": None, "pinned": None, "versions": [], "switchable": False}
    store = source.store
    rows = _with_lessons(source, [_row(one) for one in reversed(store.versions.all()[-SHOWN:])])
    live = store.versions.live()
    return {"object": "list", "live": live, "pinned": None, "versions": rows, "switchable": False}


def _with_lessons(source: ViewSource, rows: list[Json]) -> list[Json]:
    """Returns the rows with the number of turns that each version was trained on, and of those judged good and bad."""
    if source.recorder is None:
        return [{**row, "learned": NOTHING} for row in rows]
    learned = source.store.versions.learned_by([int(row["version"]) for row in rows])
    return [{**row, "learned": learned.get(int(row["version"]), NOTHING)} for row in rows]


def _why(details: Json) -> str | None:
    """Returns why a version was rejected or undone; None if it was not."""
    undone = details.get("undone") if details.get("status") == str(VersionStatus.ROLLED_BACK) else None
    return details.get("reason") or undone


def _row(one: WeightVersion) -> Json:
    details: Json = getattr(one, "details", None) or {}
    return {
        "version": one.version,
        "parent": one.parent,
        "status": str(one.status),
        "created_at": one.created_at,
        "reason": _why({**details, "status": str(one.status)}),
        "measurements": details.get("measurements") or {},
        "rollout_id": one.rollout_id,
        "on_disk": one.path is not None,
        "quarantined": 0,
    }


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300] or f"HTTP status {answer.status_code} without a message"
