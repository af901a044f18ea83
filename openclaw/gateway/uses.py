"""Uses of people's words that are in progress, so that a deletion can wait for their end.

A use is a request from its arrival to the end of its answer, a stored prompt that is answered again, or a canary test.
Only uses of this process are known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakSet

WAIT_SECONDS = 30.0
"""Longest wait for the end of uses."""
POLL_SECONDS = 0.02


@dataclass(eq=False)
class Use:
    """One use; it also ends when its last reference is dropped.

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
    """All uses of one gateway. Must be used in one event loop."""

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
        """Waits for the uses of a person's words that have begun, for at most `WAIT_SECONDS`, and cancels those in the
        background. Returns the number of those that still run."""
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
        while (running := self._stop(is_meant, now)) and time.monotonic() - now < WAIT_SECONDS:
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
