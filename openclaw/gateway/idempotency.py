"""The same request sent again while its first try is still being answered: one turn, not two.

A client that lost its connection, or its patience, says that it tries again (`X-Stainless-Retry-Count`, as OpenAI's
clients send it, or the same `Idempotency-Key`). Then it gets the very answer that is being sampled, from its
beginning. A request that only looks the same is another wish for an answer and gets its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import orjson

from openclaw.engine.client import Engines
from openclaw.engine.generation import EngineRequest, Generation, Increment
from openclaw.gateway.headers import PEER_HEADER, PERSON_HEADER

LOOK_SECONDS = 0.02
"""How often a later try looks for what the first one has got."""


@dataclass(frozen=True)
class Attempt:
    """What tells a request from others, and whether it says that it was sent before."""

    key: bytes
    again: bool

    @classmethod
    def of(cls, headers: Mapping[str, str], body: Mapping[str, Any], scope: str | None) -> Attempt:
        """Tries of one request come from the same address, with the same key and the same body."""
        name = headers.get("idempotency-key", "")
        who = [headers.get(PERSON_HEADER), headers.get(PEER_HEADER), name, scope]
        counted = headers.get("x-stainless-retry-count", "0")
        key = hashlib.blake2b(orjson.dumps([who, body]), digest_size=16).digest()
        return cls(key, bool(name) or counted not in ("", "0"))


class Try(Generation):
    """A generation that later tries of the same request can follow.

    Args:
        turn_id: of the turn that all tries are. first: the try to follow; None: there was none.
    """

    def __init__(
        self, engines: Engines, request: EngineRequest, session_id: str, turn_id: str, first: Try | None
    ) -> None:
        super().__init__(engines, request, session_id)
        self.request = request
        self.session_id = session_id
        self.turn_id = turn_id
        self._first = first
        self.ended = False

    async def run(self) -> AsyncGenerator[Increment, None]:
        """Increments until finished: of the first try as long as that goes on, then its own."""
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

    async def _follow(self, first: Try) -> AsyncGenerator[Increment, None]:
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
                await asyncio.sleep(LOOK_SECONDS)
        self._closed_spans = first.spans
        self.finish_reason, self.matched = first.finish_reason, first.matched


class Tries:
    """The generations that run."""

    def __init__(self) -> None:
        self._newest: WeakValueDictionary[bytes, Try] = WeakValueDictionary()
        self._all: WeakSet[Try] = WeakSet()

    def first(self, attempt: Attempt) -> Try | None:
        """The try that a request repeats, if it says so and that is not over."""
        found = self._newest.get(attempt.key) if attempt.again else None
        return None if found is None or found.ended else found

    def begin(self, attempt: Attempt, generation: Try) -> Try:
        """Note a generation, so that later tries find it."""
        self._newest[attempt.key] = generation
        self._all.add(generation)
        return generation

    def goes_on(self, turn_id: str) -> bool:
        """Whether a turn, one of whose tries was given up, is still being answered to another."""
        return any(one.turn_id == turn_id and not one.ended for one in list(self._all))
