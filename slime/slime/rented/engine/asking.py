"""One request at the service, repeated for as long as the client waits: no answer of it is lost meanwhile."""

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
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds
SLOW = 30.0  # seconds without an answer after which it is logged
REFUSALS = 2
"""A sampler may be refused because the service has forgotten it; a new one that is refused too is the request's
fault. If the service does not know a new one either, it has lost the weights."""


class Outage:
    """Whether the service answers, over all requests of an engine; logged once when it stops and once when it is
    back."""

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
    """The service does not answer with a version, and another is live: services may lose weights while they are away."""


async def asked(
    version: RentedVersion,
    ask: Callable[[Sampler], Future[T]],
    outage: Outage,
    is_superseded: Callable[[], bool] = lambda: False,
) -> T:
    """Returns the service's answer with a version, however long it is away.

    Raises:
        ServiceRefuses: the request is wrong.
        Superseded: another version may answer instead.
    """
    pause, refusals, forgotten = FIRST_PAUSE, 0, 0
    while True:
        sampler: Sampler | None = None
        try:
            sampler = await asyncio.to_thread(version.sampler)
            answer = await _watched(ask(sampler), outage)
            outage.ends()
            version.forgotten = False
            return answer
        except ServiceRefuses:
            refusals += 1
            if refusals >= REFUSALS:
                raise
        except ServiceAway as error:
            outage.begins(error)
            forgotten += isinstance(error, ServiceForgot)
            version.forgotten = forgotten >= REFUSALS
            await asyncio.sleep(pause)
            if is_superseded():
                raise Superseded from error
            pause = min(2 * pause, LONGEST_PAUSE)
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
    """Questions go side by side; a load waits for those under way and keeps the next ones waiting."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._under_way = 0
        self._loading = False

    @asynccontextmanager
    async def question(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._under_way += 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._loading)
            self._loading = True
            try:
                await self._changed.wait_for(lambda: not self._under_way)
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
