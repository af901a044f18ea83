"""Answers in progress: their limit, the queue, and how a repeated request joins its running answer.

Under overload, health checks and administration are not counted, and running answers continue. Main turns wait if all
slots are taken. Side turns wait if half of the slots are taken, and main turns precede them in the queue.

A client that lost its connection or timed out marks the repeated request (`X-Stainless-Retry-Count`, which OpenAI's
clients send, or the same `Idempotency-Key`). If the first attempt is still running, no second turn is created: the
client receives the running answer from its beginning. An equal request without the mark gets its own answer.
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
    """Admits one stream in each round of the event loop, so that a burst of requests neither delays its first request
    nor blocks running ones."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Returns when the caller is admitted."""
        async with self._lock:
            await asyncio.sleep(0)


class RunningAnswers:
    """Slots for answers; `most`: their number. Belongs to one event loop."""

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
        """Waits for a slot, and holds it inside the context."""
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
            if waiter.done() and not waiter.cancelled():  # it got its slot at the same moment
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
"""Interval at which a repeated request checks for new tokens of the first attempt."""


class SharedGeneration(Generation):
    """A generation that later attempts of the same request can follow.

    Args:
        turn_id: id of the turn that all attempts share.
        first: the attempt to follow; None: this is the first.
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
        """Restarts this same generation with another prompt, so that later attempts still find it. `request` is
        unchanged."""
        self._request = super().with_prompt(prompt_ids, room)._request
        return self

    async def run(self) -> AsyncGenerator[Increment, None]:
        """Yields increments until finished: the first attempt's while it runs, then its own."""
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
        over = False
        while not over:
            over = first.ended
            have = len(self.ids)
            new = Increment(first.ids[have:], first.log_probs[have:], [])
            if new.ids:
                self.ids += new.ids
                self.log_probs += new.log_probs
                yield new
            elif not over:
                await asyncio.sleep(POLL_SECONDS)
        self._closed_spans = first.spans
        self.finish_reason, self.matched = first.finish_reason, first.matched


class InFlight:
    """The running generations."""

    def __init__(self) -> None:
        self._newest: WeakValueDictionary[bytes, SharedGeneration] = WeakValueDictionary()
        self._all: WeakSet[SharedGeneration] = WeakSet()

    def find(self, key: RequestKey) -> SharedGeneration | None:
        """Returns the running generation that a request repeats; None if the request is not marked as repeated."""
        running = self._newest.get(key.digest) if key.repeated else None
        return None if running is None or running.ended else running

    def add(self, key: RequestKey, generation: SharedGeneration) -> SharedGeneration:
        """Registers a generation, so that repeated requests find it."""
        self._newest[key.digest] = generation
        self._all.add(generation)
        return generation

    def continues(self, turn_id: str) -> bool:
        """Returns whether an abandoned turn is still answered for another attempt."""
        return any(one.turn_id == turn_id and not one.ended for one in list(self._all))
