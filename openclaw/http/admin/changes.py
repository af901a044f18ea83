"""Routes with which administrators change stored data: overrule the judge, repeat a prompt, delete."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.errors import ClientError
from openclaw.gateway.chat_request import integer, number, parse_body, printable, string
from openclaw.http.browser import check_change
from openclaw.views import changes
from openclaw.views.again import again
from openclaw.views.source import source_of

router = APIRouter()


@router.post("/admin/turns/{completion_id}/verdict")
async def post_verdict(request: Request, completion_id: str) -> Response:
    """Stores an administrator's rating `{"score": -1..1, "text": hint}`, which overrides the judge's score."""
    check_change(request)
    body = parse_body(await request.body())
    score, text = number(body, "score", -1.0, 1.0), string(body, "text") or ""
    id_ = printable(completion_id, "completion_id")
    return _json(await changes.overrule(source_of(request), id_, score, text))


@router.post("/admin/turns/{completion_id}/again")
async def post_again(request: Request, completion_id: str) -> Response:
    """Answers a stored prompt again, without storing the answer.

    The live weights sample an answer; `{"version": N}` makes version N answer greedily.
    """
    check_change(request)
    version = integer(parse_body(await request.body() or b"{}"), "version", 0, 2**31)
    return _json(await again(source_of(request), printable(completion_id, "completion_id"), version))


@router.delete("/admin/persons/{person:path}/content")
async def delete_person(request: Request, person: str) -> Response:
    """Deletes the sessions, turns and derived data of a person. Raises ClientError (404) if there are none."""
    check_change(request)
    return _json(await changes.delete_person(source_of(request), printable(person, "person")))


@router.post("/admin/purge")
async def post_purge(request: Request) -> Response:
    """Deletes finished turns (trained, dropped or ended) that are older than `{"retention_days": N}`."""
    check_change(request)
    days = number(parse_body(await request.body()), "retention_days", 0.0, 1e6)
    if days is None:
        raise ClientError("retention_days must be a number of days", "retention_days")
    return _json(await changes.purge(source_of(request), days))


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
