"""How many answers are sampled at a time, and who waits first when there are too many.

The order under overload: health and administration are never counted; answers that run go on; main turns wait when all
places are taken; side turns already wait when half of them are, and behind main turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Admission:
    """Admits one stream in a round of the event loop: of many that arrive at once the first is with the engine before
    the last is read, and running ones continue in between."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Returns when the caller is admitted."""
        async with self._lock:
            await asyncio.sleep(0)


class RunningAnswers:
    """Places for answers; `most` is how many there are. One event loop."""

    def __init__(self, most: int) -> None:
        self._limits = {"main": most, "side": max(1, most // 2)}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {"main": deque(), "side": deque()}
        self.running = 0

    @property
    def waiting(self) -> int:
        """Answers that wait for a place."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def place(self, turn_type: str) -> AsyncIterator[None]:
        """Waits for a place, and holds it."""
        await self._take("side" if turn_type == "side" else "main")
        try:
            yield
        finally:
            self.running -= 1
            self._admit()

    async def _take(self, kind: str) -> None:
        if self.running < self._limits[kind] and not self._waiting["main"]:
            self.running += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # its place came in the same moment
                self.running -= 1
            else:
                self._waiting[kind].remove(waiter)
            self._admit()
            raise

    def _admit(self) -> None:
        for kind, queue in self._waiting.items():
            while queue and self.running < self._limits[kind]:
                waiter = queue.popleft()
                if not waiter.done():
                    self.running += 1
                    waiter.set_result(None)
