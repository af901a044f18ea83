"""One writer thread a process: what is queued while a transaction runs goes into the next one together."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from openclaw.errors import StoreUnavailable
from openclaw.store.database import Database

T = TypeVar("T")

MAX_GROUP = 256
"""Functions in one transaction, at most."""
MAX_PENDING = 4096
"""Functions that may wait in one process."""
MAX_WAIT_SECONDS = 30.0
"""How long a caller waits for room before it gets an error that the store is behind."""


@dataclass(frozen=True)
class _Job:
    function: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)


class StoreWriter:
    """`turn = await writer.submit(lambda: store.turns.record(new_turn))`.

    The function runs in the writer thread inside a group transaction; submit returns when that is
    committed. It must do nothing but store calls: when one function of a group fails, the group is undone
    and each runs again alone, so an exception undoes and reaches only its own. A caller that is cancelled
    leaves its function to run.

    Backpressure: with `max_pending` functions under way, submit waits for room, and raises StoreUnavailable after
    `max_wait` seconds without any.
    """

    def __init__(
        self, database: Database, max_pending: int = MAX_PENDING, max_wait: float = MAX_WAIT_SECONDS
    ) -> None:
        self._database = database
        self._max_pending = max_pending
        self._max_wait = max_wait
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(max_pending)
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._thread.start()

    async def submit(self, function: Callable[[], T]) -> T:
        """Run a function of store calls; its result is durable when this returns. Raises StoreUnavailable when the
        database cannot commit, has no room in time, or the writer is closed, and whatever the function
        raises."""
        try:
            async with asyncio.timeout(self._max_wait):
                await self._room.acquire()
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the rollout store is {self._max_pending} writes behind and took none for {self._max_wait:g} s:"
                " look at its disk or server; try again later"
            ) from error
        try:
            return cast(T, await asyncio.shield(asyncio.wrap_future(self._put(function))))
        finally:
            self._room.release()

    def run(self, function: Callable[[], T]) -> T:
        """The same for a plain thread: blocks until committed."""
        return cast(T, self._put(function).result())

    def close(self) -> None:
        """Commit what is queued, then end the thread. Twice is no error."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, function: Callable[[], object]) -> Future[Any]:
        job = _Job(function)
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store writer is closed")
            self._queue.put(job)
        return job.done

    def _write(self) -> None:
        last = False
        while not last:
            first = self._queue.get()
            if first is None:
                return
            group, last = self._group(first)
            self._commit(group)

    def _group(self, first: _Job) -> tuple[list[_Job], bool]:
        """What waits behind `first`, and whether the writer was closed behind it."""
        group = [first]
        while len(group) < MAX_GROUP:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return group, True
            group.append(job)
        return group, False

    def _commit(self, jobs: list[_Job]) -> None:
        """All in one transaction; if any fails, each in its own, so that it fails alone. Where no transaction can even
        begin (the database is locked, or gone) all fail: each would only wait as long again."""
        if len(jobs) == 1:
            self._commit_alone(jobs[0])
            return
        begun = False
        try:
            with self._database.transaction():
                begun = True
                results = [job.function() for job in jobs]
        except Exception as error:  # whose error it is shows when each runs alone
            for job in jobs:
                if begun:
                    self._commit_alone(job)
                else:
                    job.done.set_exception(error)
            return
        for job, result in zip(jobs, results, strict=True):
            job.done.set_result(result)

    def _commit_alone(self, job: _Job) -> None:
        try:
            with self._database.transaction():
                result = job.function()
        except Exception as error:  # raised again where the function came from
            job.done.set_exception(error)
        else:
            job.done.set_result(result)
