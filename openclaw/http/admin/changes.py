"""Administrators' changes as JSON: overrule the judge, try a prompt again, delete."""

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
    """Handles `{"score": -1..1, "text": hint}`: overrules the judge, like /v1/feedback for the user."""
    check_change(request)
    body = parse_body(await request.body())
    score, text = number(body, "score", -1.0, 1.0), string(body, "text") or ""
    id_ = printable(completion_id, "completion_id")
    return _json(await changes.overrule(source_of(request), id_, score, text))


@router.post("/admin/turns/{completion_id}/again")
async def post_again(request: Request, completion_id: str) -> Response:
    """Answers the prompt again with the live weights, or greedily with `{"version": N}`; nothing is stored."""
    check_change(request)
    version = integer(parse_body(await request.body() or b"{}"), "version", 0, 2**31)
    return _json(await again(source_of(request), printable(completion_id, "completion_id"), version))


@router.delete("/admin/persons/{person:path}/content")
async def delete_person(request: Request, person: str) -> Response:
    """Deletes a person's sessions and turns and all data derived from them; 404 if there are none."""
    check_change(request)
    return _json(await changes.delete_person(source_of(request), printable(person, "person")))


@router.post("/admin/purge")
async def post_purge(request: Request) -> Response:
    """Handles `{"retention_days": N}`: deletes older turns that are trained, dropped or ended."""
    check_change(request)
    days = number(parse_body(await request.body()), "retention_days", 0.0, 1e6)
    if days is None:
        raise ClientError("retention_days must be a number of days", "retention_days")
    return _json(await changes.purge(source_of(request), days))


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
