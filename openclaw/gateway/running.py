"""Running answers: the limit on their number, the queue, and retries that join an answer in progress.

Only answers take slots; health checks and administration do not. A main turn waits if all slots are taken. A side turn
waits if half of the slots are taken, or a main turn waits.

After a lost connection or a time-out, clients mark the retry: OpenAI's clients send `X-Stainless-Retry-Count`, others
repeat the `Idempotency-Key`. If the first attempt is still running, the retry creates no second turn and receives the
running answer from its beginning. An equal request without a mark gets an answer of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from weakref import WeakSet, WeakValueDictionary

from openclaw.engine.client import EngineClient
from openclaw.engine.generation import EngineRequest, Generation, Increment
from openclaw.gateway.caller import RequestKey
from openclaw.types import PlacedPicture, RenderMode


class Admission:
    """Admits one new stream per iteration of the event loop, so that a burst of requests does not block running
    streams."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Waits until the caller is admitted."""
        async with self._lock:
            await asyncio.sleep(0)


class RunningAnswers:
    """Slots for answers. Must be used in one event loop.

    Args:
        most: number of slots.
    """

    def __init__(self, most: int) -> None:
        self._limits = {"main": most, "side": max(1, most // 2)}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {"main": deque(), "side": deque()}
        self.running = 0

    @property
    def waiting(self) -> int:
        """Returns the number of answers that wait for a slot."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def place(self, turn_type: str) -> AsyncIterator[None]:
        """Waits for a slot, and holds it until the context ends."""
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
            if waiter.done() and not waiter.cancelled():  # a slot was assigned before the cancellation
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


POLL_SECONDS = 0.02
"""Interval at which a retry checks for new tokens of the first attempt."""


class SharedGeneration(Generation):
    """A generation whose tokens later attempts of the same request can receive too.

    Args:
        turn_id: id of the turn, the same for all attempts.
        first: generation of the first attempt; None if this is the first.
        mode: how the prompt was rendered.
        memory: the remembered preferences in it.
        pictures: the pictures in it.
    """

    def __init__(
        self,
        engines: EngineClient,
        request: EngineRequest,
        session_id: str,
        turn_id: str,
        first: SharedGeneration | None,
        mode: RenderMode = "full",
        memory: Sequence[str] | None = None,
        pictures: Sequence[PlacedPicture] = (),
    ) -> None:
        super().__init__(engines, request, session_id)
        self.request = request
        self.session_id = session_id
        self.turn_id = turn_id
        self.mode = mode
        self.memory = None if memory is None else list(memory)
        self.pictures = list(pictures)
        self._first = first
        self.ended = False

    def with_prompt(self, prompt_ids: list[int], room: int) -> SharedGeneration:
        """Changes the prompt of this generation and returns it. It stays the same object, so that retries still find
        it; `request` keeps the original prompt."""
        self._request = super().with_prompt(prompt_ids, room)._request
        return self

    async def run(self) -> AsyncGenerator[Increment, None]:
        """Yields increments until the answer is complete: those of the first attempt while it runs, then its own."""
        try:
            if self._first is not None:
                async with aclosing(self._follow(self._first)) as increments:
                    async for increment in increments:
                        yield increment
                self._first = None
            async with aclosing(super().run()) as increments:
                async for increment in increments:
                    yield increment
        finally:
            self.ended = True

    async def _follow(self, first: SharedGeneration) -> AsyncGenerator[Increment, None]:
        ended = False
        while not ended:
            ended = first.ended
            count = len(self.ids)
            new = Increment(first.ids[count:], first.log_probs[count:], [])
            if new.ids:
                self.ids += new.ids
                self.log_probs += new.log_probs
                yield new
            elif not ended:
                await asyncio.sleep(POLL_SECONDS)
        self._closed_spans = first.spans
        self.finish_reason, self.matched = first.finish_reason, first.matched


class InFlight:
    """Finds running generations by request or turn."""

    def __init__(self) -> None:
        self._newest: WeakValueDictionary[bytes, SharedGeneration] = WeakValueDictionary()
        self._all: WeakSet[SharedGeneration] = WeakSet()

    def find(self, key: RequestKey) -> SharedGeneration | None:
        """Returns the running generation of an earlier attempt; None if there is none, or the request is not marked as
        a retry."""
        running = self._newest.get(key.digest) if key.repeated else None
        return None if running is None or running.ended else running

    def add(self, key: RequestKey, generation: SharedGeneration) -> SharedGeneration:
        """Registers a generation, so that retries find it. Returns the generation."""
        self._newest[key.digest] = generation
        self._all.add(generation)
        return generation

    def continues(self, turn_id: str) -> bool:
        """Returns whether another attempt still samples the answer of a turn."""
        return any(one.turn_id == turn_id and not one.ended for one in list(self._all))
