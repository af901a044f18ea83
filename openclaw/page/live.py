"""Server-sent events: pages are notified of changes and reload. One query of the store serves all pages."""

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

LOOK_SECONDS = 1.0
SIGN_OF_LIFE_SECONDS = 15.0
MOST_READERS = 32

router = APIRouter()


@router.get("/page/events", include_in_schema=False)
async def events(request: Request) -> StreamingResponse:
    """Sends `event: changed` after every change of the store, at most one a second."""
    check_reader(request)
    changes = _changes(request)
    if changes.readers >= MOST_READERS:
        raise ClientError("too many pages are open", code="too_many_pages", status=429, retry_after=30)
    headers = {**HEADERS, "x-accel-buffering": "no"}
    return StreamingResponse(changes.follow(), headers=headers, media_type="text/event-stream")


class Changes:
    """Polls the store while a page listens."""

    def __init__(self, source: ViewSource) -> None:
        self._source = source
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.readers = 0

    async def follow(self) -> AsyncIterator[bytes]:
        """Yields events until the client disconnects."""
        self.readers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield b": hello\n\n"
            while True:
                yield b"event: changed\ndata: \n\n" if await self._wait() else b": still here\n\n"
        finally:
            self.readers -= 1

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(SIGN_OF_LIFE_SECONDS), self._changed:
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _look(self) -> None:
        seen: Any = None
        while self.readers:
            try:
                seen_now = await self._source.in_thread(lambda: fingerprint(self._source.store))
            except (StoreError, ClientError) as error:
                log.info("the page cannot read the store: %s", error)
                seen_now = seen
            if seen_now != seen:
                seen = seen_now
                async with self._changed:
                    self._changed.notify_all()
            await asyncio.sleep(LOOK_SECONDS)


def fingerprint(store: RolloutStore) -> tuple[Any, ...]:
    """Returns a value that differs after every change that pages show; each part is one index lookup."""
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
