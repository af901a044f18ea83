"""What runs in a gateway: the limit on answers, their queue, retries that join one, and uses that a deletion waits for.

Only answers take slots; health checks and administration do not. A main turn waits if all slots are taken. A side turn
waits if half of the slots are taken, or a main turn waits.

After a lost connection or a time-out, clients mark the retry: OpenAI's clients send `X-Stainless-Retry-Count`, others
repeat the `Idempotency-Key`. If the first attempt is still running, the retry creates no second turn and receives the
running answer from its beginning. An equal request without a mark gets an answer of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from weakref import WeakSet, WeakValueDictionary

from openclaw.engine.client import EngineClient
from openclaw.engine.generation import EngineRequest, Generation, Increment
from openclaw.gateway.caller import RequestKey
from openclaw.types import PlacedPicture, RenderMode

POLL_SECONDS = 0.02
"""Interval at which a retry checks for new tokens of the first attempt, and a deletion for the end of uses."""
DELETION_WAIT_SECONDS = 30.0
"""Longest wait of a deletion for the end of uses."""


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


@dataclass(eq=False)
class Use:
    """One use of people's words: a request from its arrival to the end of its answer, a stored prompt that is answered
    again, or a canary test. It also ends when its last reference is dropped.

    Attributes:
        people: whose words are used; None if that is not known yet, so that every deletion waits.
        session_id: session of the words; None if it is not known.
        cancel: stops a use in the background, which is repeated later; None for uses that a client waits for.
        began: seconds of the monotonic clock.
    """

    people: set[str] | None
    session_id: str | None = None
    cancel: Callable[[], object] | None = None
    began: float = field(default_factory=time.monotonic)
    has_ended: bool = False
    _is_cancelled: bool = False

    def end(self) -> None:
        self.has_ended = True

    def extend(self, session_id: str, person: str | None) -> None:
        """Adds facts that became known later: the session, and the person of an earlier turn in the prompt."""
        self.session_id = session_id
        if self.people is not None and person is not None:
            self.people.add(person)

    def stop(self) -> None:
        """Cancels a use in the background, once; others continue."""
        if self.cancel is not None and not self._is_cancelled:
            self._is_cancelled = True
            self.cancel()


class UsesInProgress:
    """All uses of one gateway, so that a deletion can wait for their end. Must be used in one event loop.

    Only uses of this process are known.
    """

    def __init__(self) -> None:
        self._all: WeakSet[Use] = WeakSet()

    def begin(self, use: Use) -> Use:
        """Adds a use, which lasts until its `end`, and returns it."""
        self._all.add(use)
        return use

    @contextmanager
    def during(self, use: Use) -> Iterator[None]:
        """Adds a use that lasts as long as the context."""
        self._all.add(use)
        try:
            yield
        finally:
            use.end()

    async def end_of_person(self, person: str) -> int:
        """Waits for the uses of a person's words that have begun, for at most `DELETION_WAIT_SECONDS`, and cancels those
        in the background. Returns the number of those that still run."""
        return await self._end_of(lambda use: use.people is None or person in use.people)

    async def end_of_session(self, session_id: str) -> int:
        """Does the same for a session. All uses in the background end, because they may use any session."""
        return await self._end_of(
            lambda use: use.people is None or use.session_id == session_id or use.cancel is not None
        )

    async def end_in_background(self) -> int:
        """Does the same for all uses in the background."""
        return await self._end_of(lambda use: use.cancel is not None)

    async def _end_of(self, is_meant: Callable[[Use], bool]) -> int:
        now = time.monotonic()
        while (running := self._stop(is_meant, now)) and time.monotonic() - now < DELETION_WAIT_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
        return running

    def _stop(self, is_meant: Callable[[Use], bool], latest: float) -> int:
        """Stops the uses in the background that began up to `latest`. Returns the number of uses that have not ended."""
        running = [
            use for use in list(self._all) if not use.has_ended and use.began <= latest and is_meant(use)
        ]
        for use in running:
            use.stop()
        return len(running)
