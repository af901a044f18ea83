"""Curves, privacy and what may be changed, as JSON under /admin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from openclaw.errors import ClientError
from openclaw.gateway.fields import integer, number, parse_body, string
from openclaw.page import changes
from openclaw.page.access import check_change, check_reader
from openclaw.page.again import again
from openclaw.page.html import HEADERS
from openclaw.page.json_routes import printable
from openclaw.page.learning import learning
from openclaw.page.privacy import privacy
from openclaw.page.source import PageSource, source_of
from openclaw.store.files.exporting import export_lines

router = APIRouter()


@router.get("/admin/learning")
async def get_learning(request: Request) -> Response:
    """The curves over versions, from the run's metrics.jsonl: `{"x", "steps", "times", "charts"}`."""
    check_reader(request)
    source = source_of(request)
    return _json(await source.in_thread(lambda: learning(source)))


@router.get("/admin/privacy")
async def get_privacy(request: Request) -> Response:
    """What is stored of whom, where, and for how long."""
    check_reader(request)
    source = source_of(request)
    return _json(await source.in_thread(lambda: privacy(source)))


@router.get("/admin/export")
async def export(request: Request, session_id: str | None = None, person: str | None = None) -> Response:
    """JSON lines of everything, of one session or of one person, as `python -m openclaw.store export`."""
    check_reader(request)
    source = source_of(request)
    lines = await source.in_thread(lambda: _started(source, session_id, person))
    headers = {**HEADERS, "content-disposition": 'attachment; filename="openclaw-export.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type="application/jsonl")


@router.post("/admin/turns/{completion_id}/verdict")
async def post_verdict(request: Request, completion_id: str) -> Response:
    """`{"score": -1..1, "text": hint}`: overrules the judge, as /v1/feedback does for the person who talks."""
    check_change(request)
    body = parse_body(await request.body())
    score, text = number(body, "score", -1.0, 1.0), string(body, "text") or ""
    id_ = printable(completion_id, "completion_id")
    return _json(await changes.overrule(source_of(request), id_, score, text))


@router.post("/admin/turns/{completion_id}/again")
async def post_again(request: Request, completion_id: str) -> Response:
    """The prompt once more on the live weights, or with `{"version": N}` the likeliest answer of that one; nothing is
    stored."""
    check_change(request)
    version = integer(parse_body(await request.body() or b"{}"), "version", 0, 2**31)
    return _json(await again(source_of(request), printable(completion_id, "completion_id"), version))


@router.delete("/admin/persons/{person:path}/content")
async def delete_person(request: Request, person: str) -> Response:
    """Delete a person's sessions and turns and all that derives from them; 404 when there are none."""
    check_change(request)
    return _json(await changes.delete_person(source_of(request), printable(person, "person")))


@router.post("/admin/purge")
async def post_purge(request: Request) -> Response:
    """`{"retention_days": N}`: deletes turns that are older and trained, dropped or ended."""
    check_change(request)
    days = number(parse_body(await request.body()), "retention_days", 0.0, 1e6)
    if days is None:
        raise ClientError("retention_days must be a number of days", "retention_days")
    return _json(await changes.purge(source_of(request), days))


def _started(source: PageSource, session_id: str | None, person: str | None) -> Iterator[bytes]:
    """The lines of an export; that the store can be read shows before the answer begins."""
    lines = export_lines(source.store, session_id, person)
    first = next(lines)

    def rest() -> Iterator[bytes]:
        yield first
        yield from lines

    return rest()


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
