"""Routes that return stored data and the state of the run as JSON; the data comes from `openclaw.views`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from openclaw.errors import ClientError
from openclaw.gateway.chat_request import printable, whole
from openclaw.http.browser import HEADERS, check_reader
from openclaw.store.files.exporting import export_lines
from openclaw.views.learning import learning
from openclaw.views.lessons import lessons
from openclaw.views.now import now
from openclaw.views.privacy import privacy
from openclaw.views.sessions import SESSIONS_A_PAGE, TURNS_A_PAGE, session, sessions
from openclaw.views.source import ViewSource, source_of
from openclaw.views.tokens import tokens
from openclaw.views.turn import turn

router = APIRouter()

MOST = 200
"""Most sessions or turns in one response."""


@router.get("/admin/now")
async def get_now(request: Request) -> Response:
    """Returns the current state: the four loops and their lag, counts, open sessions, processes and alarms."""
    check_reader(request)
    return _json(await now(source_of(request)))


@router.get("/admin/sessions")
async def get_sessions(request: Request, limit: str = "", before: str = "") -> Response:
    """Returns sessions, newest first: `{"open", "ended", "next"}`.

    `before=NEXT` requests the next page; `limit`: 1 to 200 sessions.
    """
    check_reader(request)
    source, most = source_of(request), whole(limit, "limit", SESSIONS_A_PAGE, 1, MOST)
    earlier = _seconds(before)
    return _json(await source.in_thread(lambda: sessions(source.store, most, earlier)))


@router.get("/admin/sessions/{session_id:path}")
async def get_session(request: Request, session_id: str, limit: str = "", after: str = "") -> Response:
    """Returns a session with its turns in order: messages, answers, next states, judgements and training status.

    `after=NEXT` requests the next page.
    """
    check_reader(request)
    source, most = source_of(request), whole(limit, "limit", TURNS_A_PAGE, 1, MOST)
    after_index = whole(after, "after", -1, -1, 2**31)
    id_ = printable(session_id, "session_id")
    return _json(await source.in_thread(lambda: session(source.store, id_, after_index, most)))


@router.get("/admin/turns/{completion_id}")
async def get_turn(request: Request, completion_id: str) -> Response:
    """Returns all data of one turn: prompt, answer, next state, judgements, feedback, sample and training."""
    check_reader(request)
    source, id_ = source_of(request), printable(completion_id, "completion_id")
    return _json(await source.in_thread(lambda: turn(source.store, id_)))


@router.get("/admin/turns/{completion_id}/tokens")
async def get_tokens(request: Request, completion_id: str) -> Response:
    """Returns the tokens of an answer: ids, texts, log-probs and versions.

    After training also the advantages, and the log-probs of the trainer and the teacher.
    """
    check_reader(request)
    source, id_ = source_of(request), printable(completion_id, "completion_id")
    return _json(await source.in_thread(lambda: tokens(source.store, source.tokenizer, id_)))


@router.get("/admin/versions/{number}/turns")
async def get_version_turns(request: Request, number: str, limit: str = "", after: str = "") -> Response:
    """Returns the turns that a version was trained on: `{"turns", "good", "bad", "data", "next"}`.

    `after=NEXT` requests the next page.
    """
    check_reader(request)
    source, most = source_of(request), whole(limit, "limit", TURNS_A_PAGE, 1, MOST)
    version, after_index = whole(number, "version", 0, 0, 2**31), whole(after, "after", 0, 0, 2**62)
    return _json(await source.in_thread(lambda: lessons(source.store, version, after_index, most)))


@router.get("/admin/learning")
async def get_learning(request: Request) -> Response:
    """Returns training metrics by version, read from metrics.jsonl: `{"x", "steps", "times", "charts"}`."""
    check_reader(request)
    source = source_of(request)
    return _json(await source.in_thread(lambda: learning(source)))


@router.get("/admin/privacy")
async def get_privacy(request: Request) -> Response:
    """Returns counts of stored data by person, the location of the store, and the retention time."""
    check_reader(request)
    source = source_of(request)
    return _json(await source.in_thread(lambda: privacy(source)))


@router.get("/admin/export")
async def export(request: Request, session_id: str | None = None, person: str | None = None) -> Response:
    """Returns stored turns as JSON lines: of one session, of one person, or all.

    The format is that of `python -m openclaw.store export`.
    """
    check_reader(request)
    source = source_of(request)
    lines = await source.in_thread(lambda: _export_lines(source, session_id, person))
    headers = {**HEADERS, "content-disposition": 'attachment; filename="openclaw-export.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type="application/jsonl")


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError as error:
        raise ClientError("before must be a Unix time in seconds", "before") from error


def _export_lines(source: ViewSource, session_id: str | None, person: str | None) -> Iterator[bytes]:
    """Returns the lines of an export. Reads the first one now, so that errors of the store become an error response."""
    lines = export_lines(source.store, session_id, person)
    first = next(lines)

    def rest() -> Iterator[bytes]:
        yield first
        yield from lines

    return rest()


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json", headers={"cache-control": "no-store"})
