"""Server-sent events that make pages reload after changes. One query of the store serves all open pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from sqlalchemy import func, select
from starlette.responses import StreamingResponse

from openclaw.errors import ClientError, StoreError
from openclaw.http.browser import HEADERS, check_reader
from openclaw.store import RolloutStore, schema
from openclaw.types import SampleState, TurnState
from openclaw.views.source import ViewSource, source_of

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
MOST_READERS = 32

router = APIRouter()


@router.get("/page/events", include_in_schema=False)
async def events(request: Request) -> StreamingResponse:
    """Sends `event: changed` after changes of the store, at most one a second."""
    check_reader(request)
    changes = _changes(request)
    if changes.readers >= MOST_READERS:
        raise ClientError(
            f"more than {MOST_READERS} pages are open; close some and try again",
            code="too_many_pages",
            status=429,
            retry_after=30,
        )
    headers = {**HEADERS, "x-accel-buffering": "no"}
    return StreamingResponse(changes.follow(), headers=headers, media_type="text/event-stream")


class Changes:
    """Polls the store while at least one page is open."""

    def __init__(self, source: ViewSource) -> None:
        self._source = source
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.readers = 0

    async def follow(self) -> AsyncIterator[bytes]:
        """Yields events until the client disconnects."""
        self.readers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield b": hello\n\n"
            while True:
                yield b"event: changed\ndata: \n\n" if await self._wait() else b": still here\n\n"
        finally:
            self.readers -= 1

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS), self._changed:
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _poll(self) -> None:
        seen: Any = None
        while self.readers:
            try:
                seen_now = await self._source.in_thread(lambda: fingerprint(self._source.store))
            except (StoreError, ClientError) as error:
                log.info("live updates of the page: the store cannot be read: %s", error)
                seen_now = seen
            if seen_now != seen:
                seen = seen_now
                async with self._changed:
                    self._changed.notify_all()
            await asyncio.sleep(POLL_SECONDS)


def fingerprint(store: RolloutStore) -> tuple[Any, ...]:
    """Returns a value that differs after every change that pages show.

    Each element is one index lookup.
    """
    session, turn, sample = schema.session.c, schema.turn.c, schema.sample.c
    queries = (
        select(func.max(session.last_seen)).where(session.ended_at.is_(None)),
        select(func.max(session.ended_at)),
        select(func.max(schema.judgement.c.id)),
        select(func.max(schema.feedback.c.id)),
        select(func.max(turn.answered_at)).where(
            turn.state == str(TurnState.ANSWERED), turn.state_reason.is_(None)
        ),
        select(func.max(sample.id)),
        select(func.max(sample.rollout_id)).where(sample.state == str(SampleState.LEASED)),
        select(func.max(schema.weight_version.c.id)),
        select(func.max(schema.weight_version.c.activated_at)),
    )
    with store.database.reading() as connection:
        return tuple(connection.scalar(query) for query in queries)


def _changes(request: Request) -> Changes:
    source = source_of(request)
    changes: Changes | None = getattr(request.app.state, "page_changes", None)
    if changes is None:
        changes = request.app.state.page_changes = Changes(source)
    return changes
