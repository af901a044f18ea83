"""Sends one request to the service and retries it while the client waits, so that no answer is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TypeVar

from slime.rented.engine.weights import RentedVersion
from slime.rented.service import Sampler, ServiceAway, ServiceForgot, ServiceRefuses

logger = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_PAUSE, MAX_PAUSE = 0.5, 15.0  # seconds
SLOW = 30.0  # seconds without an answer until a warning is logged
MAX_REJECTIONS = 2
"""A sampler may be rejected because the service has forgotten it. If a new one is rejected too, the request is
invalid. If the service has forgotten the new one too, it has lost the weights."""


class Outage:
    """Tracks whether the service answers, over all requests of an engine. Logs the start and the end of each outage."""

    def __init__(self) -> None:
        self.since: float | None = None

    def begins(self, reason: object) -> None:
        if self.since is None:
            self.since = time.monotonic()
            logger.warning("the service does not answer, requests wait: %s", reason)

    def ends(self) -> None:
        if self.since is not None:
            logger.warning("the service answers again after %.0f s", time.monotonic() - self.since)
            self.since = None


class Superseded(Exception):
    """The service can no longer serve a version, and another one is live. Services may lose weights during an outage."""


async def asked(
    version: RentedVersion,
    ask: Callable[[Sampler], Future[T]],
    outage: Outage,
    is_superseded: Callable[[], bool] = lambda: False,
) -> T:
    """Returns the service's answer with a version; retries while the service is unavailable.

    Raises:
        ServiceRefuses: the request is invalid.
        Superseded: another version should answer instead.
    """
    pause, rejections, forgotten = FIRST_PAUSE, 0, 0
    while True:
        sampler: Sampler | None = None
        try:
            sampler = await asyncio.to_thread(version.sampler)
            answer = await _watched(ask(sampler), outage)
            outage.ends()
            version.forgotten = False
            return answer
        except ServiceRefuses:
            rejections += 1
            if rejections >= MAX_REJECTIONS:
                raise
        except ServiceAway as error:
            outage.begins(error)
            forgotten += isinstance(error, ServiceForgot)
            version.forgotten = forgotten >= MAX_REJECTIONS
            await asyncio.sleep(pause)
            if is_superseded():
                raise Superseded from error
            pause = min(2 * pause, MAX_PAUSE)
        if sampler is not None:
            version.connect_again(sampler)


async def _watched(answer: Future[T], outage: Outage) -> T:
    waiting = asyncio.wrap_future(answer)
    try:
        done, _ = await asyncio.wait([waiting], timeout=SLOW)
        if not done:
            outage.begins(f"no answer for {SLOW:.0f} s")
        return await waiting
    finally:
        waiting.cancel()


class Turns:
    """A shared lock for requests and an exclusive one for loading: a load waits for running requests and blocks new
    ones."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._running = 0
        self._loading = False

    @asynccontextmanager
    async def question(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._running += 1
        try:
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._loading = True
            try:
                await self._changed.wait_for(lambda: not self._running)
            except BaseException:
                self._loading = False
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            async with self._changed:
                self._loading = False
                self._changed.notify_all()
