"""The page's views as JSON under /admin."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.errors import ClientError
from openclaw.page.access import check_reader
from openclaw.page.lessons import lessons
from openclaw.page.now import now
from openclaw.page.sessions import SESSIONS_A_PAGE, TURNS_A_PAGE, session, sessions
from openclaw.page.source import source_of
from openclaw.page.tokens import tokens
from openclaw.page.turn import turn

router = APIRouter()

MOST = 200
"""Sessions or turns in one answer."""


@router.get("/admin/now")
async def get_now(request: Request) -> Response:
    """The moment: the four loops with their lag, counts, live sessions, processes, alarms."""
    check_reader(request)
    return _json(await now(source_of(request)))


@router.get("/admin/sessions")
async def get_sessions(request: Request, limit: str = "", before: str = "") -> Response:
    """Sessions, newest first: `{"open", "ended", "next"}`; `before=NEXT` gives the next page, `limit` is 1 to 200."""
    check_reader(request)
    source, most = source_of(request), whole(limit, "limit", SESSIONS_A_PAGE, 1, MOST)
    earlier = _seconds(before)
    return _json(await source.in_thread(lambda: sessions(source.store, most, earlier)))


@router.get("/admin/sessions/{session_id:path}")
async def get_session(request: Request, session_id: str, limit: str = "", after: str = "") -> Response:
    """A session with its turns in order: messages, answers, what followed, judgements, what became of each; `after=NEXT`
    gives the next page."""
    check_reader(request)
    source, most = source_of(request), whole(limit, "limit", TURNS_A_PAGE, 1, MOST)
    behind = whole(after, "after", -1, -1, 2**31)
    id_ = printable(session_id, "session_id")
    return _json(await source.in_thread(lambda: session(source.store, id_, behind, most)))


@router.get("/admin/turns/{completion_id}")
async def get_turn(request: Request, completion_id: str) -> Response:
    """One turn in full: prompt, answer, next state, votes, hints, feedback, sample, training."""
    check_reader(request)
    source, id_ = source_of(request), printable(completion_id, "completion_id")
    return _json(await source.in_thread(lambda: turn(source.store, id_)))


@router.get("/admin/turns/{completion_id}/tokens")
async def get_tokens(request: Request, completion_id: str) -> Response:
    """Its tokens: ids, texts, log-probs, versions; once trained, advantages, the trainer's log-probs, the teacher."""
    check_reader(request)
    source, id_ = source_of(request), printable(completion_id, "completion_id")
    return _json(await source.in_thread(lambda: tokens(source.store, source.tokenizer, id_)))


@router.get("/admin/versions/{number}/turns")
async def get_version_turns(request: Request, number: str, limit: str = "", after: str = "") -> Response:
    """What a version learned from: `{"turns", "good", "bad", "data", "next"}`; `after=NEXT` gives the next page."""
    check_reader(request)
    source, most = source_of(request), whole(limit, "limit", TURNS_A_PAGE, 1, MOST)
    version, behind = whole(number, "version", 0, 0, 2**31), whole(after, "after", 0, 0, 2**62)
    return _json(await source.in_thread(lambda: lessons(source.store, version, behind, most)))


def whole(text: str, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises ClientError."""
    if not text:
        return default
    if len(text) > 12 or not text.lstrip("-").isdecimal() or not least <= int(text) <= most:
        raise ClientError(f"{name} must be a whole number from {least} to {most}", name)
    return int(text)


def printable(text: str, name: str) -> str:
    """An id of the address. Raises ClientError (404) for what none can be."""
    if not text.isprintable():
        raise ClientError(f"there is no {name} {text!r}", name, "not_found", 404)
    return text


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError as error:
        raise ClientError("before must be a number of seconds", "before") from error


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
