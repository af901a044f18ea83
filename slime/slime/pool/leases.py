"""Leases of environments: each belongs to one client until it is closed or misses its heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from slime.agents.protocol import Environment
from slime.agents.wire import Json, Refusal
from slime.errors import EnvironmentAway

logger = logging.getLogger(__name__)
MAX_ANSWERS = 64  # answers of a lease that are stored for repeated requests
MAX_ENDED = 10_000  # number of ended leases that are remembered


@dataclass(frozen=True)
class PoolLimits:
    """Limits of one pool.

    Attributes:
        max_runs: concurrent environments.
        max_tasks: concurrent tasks.
        max_runs_per_task: concurrent environments of one task.
        max_waiting: requests that may wait for an environment; further ones are rejected at once.
        wait_seconds: maximum wait of a request.
        ttl: seconds without a heartbeat after which a lease ends.
        closes: environments that are closed concurrently.
    """

    max_runs: int = 64
    max_tasks: int = 64
    max_runs_per_task: int = 64
    max_waiting: int = 64
    wait_seconds: float = 5.0
    ttl: float = 120.0
    closes: int = 8


@dataclass
class Lease:
    id: str
    task_key: str
    environment: Environment
    seen: float
    running: asyncio.Task[Json] | None = None
    answers: OrderedDict[str, tuple[str, asyncio.Task[Json]]] = field(default_factory=OrderedDict)


class Leases:
    """All leases of one pool. All methods must be called on the same event loop."""

    def __init__(
        self,
        make: Callable[[], Environment],
        limits: PoolLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.make, self.limits, self.clock = make, limits, clock
        self.leases: dict[str, Lease] = {}
        self.requests: dict[tuple[str, str], str] = {}
        self.ended: OrderedDict[str, None] = OrderedDict()
        self.runs: Counter[str] = Counter()  # by task, including environments that are being closed
        self.waiting = 0
        self.closing: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Condition()
        self._closes = asyncio.Semaphore(limits.closes)

    async def allocate(self, task_key: str, request_id: str | None) -> tuple[Lease, bool]:
        """Returns a lease, and whether an earlier request with the same id has created it.

        Raises:
            Refusal: there is no free place, or no environment could be created.
        """
        lease_id = self.requests.get((task_key, request_id)) if request_id else None
        if lease_id in self.leases:
            return self.leases[lease_id], True
        await self._reserve(task_key)
        try:
            environment = self.make()
        except Exception as error:
            await self._free(task_key)
            raise Refusal(500, "ENVIRONMENT_ERROR", f"{type(error).__name__}: {error}") from error
        lease = Lease(f"run-{secrets.token_hex(8)}", task_key, environment, self.clock())
        self.leases[lease.id] = lease
        if request_id:
            self.requests[task_key, request_id] = lease.id
        return lease, False

    async def _reserve(self, task_key: str) -> None:
        """Reserves a place for an environment. Raises Refusal if none becomes free in time, or too many requests wait."""
        refusal = self._refusal(task_key)
        if refusal is not None:
            if self.waiting >= self.limits.max_waiting:
                raise refusal
            self.waiting += 1
            try:
                async with self._freed, asyncio.timeout(self.limits.wait_seconds):
                    await self._freed.wait_for(lambda: self._refusal(task_key) is None)
            except TimeoutError:
                raise refusal from None
            finally:
                self.waiting -= 1
        self.runs[task_key] += 1

    def _refusal(self, task_key: str) -> Refusal | None:
        if task_key not in self.runs and len(self.runs) >= self.limits.max_tasks:
            return Refusal(
                429, "TASK_SLOTS_EXHAUSTED", f"{len(self.runs)} tasks are in use, the most allowed", 1.0
            )
        if self.runs.total() >= self.limits.max_runs:
            return Refusal(
                429,
                "RUN_SLOTS_EXHAUSTED",
                f"{self.runs.total()} environments are in use, the most allowed",
                1.0,
            )
        if self.runs.get(task_key, 0) >= self.limits.max_runs_per_task:
            return Refusal(
                429,
                "RUN_SLOTS_EXHAUSTED",
                f"{self.runs[task_key]} environments of this task are in use, the most allowed",
                1.0,
            )
        return None

    async def _free(self, task_key: str) -> None:
        self.runs[task_key] -= 1
        if not self.runs[task_key]:
            del self.runs[task_key]
        async with self._freed:
            self._freed.notify_all()

    def find(self, lease_id: str) -> Lease:
        """Returns the lease and renews it. Raises Refusal if it does not exist or has ended."""
        lease = self.leases.get(lease_id)
        if lease is None:
            if lease_id in self.ended:
                raise Refusal(410, "LEASE_ENDED", f"the lease {lease_id} has ended")
            raise Refusal(404, "NO_LEASE", f"unknown lease {lease_id}")
        lease.seen = self.clock()
        return lease

    async def call(
        self,
        lease_id: str,
        request_id: str | None,
        content: str,
        work: Callable[[Environment], Awaitable[Json]],
    ) -> Json:
        """Runs `work` on an environment, once for each request id, even if the client has disconnected.

        Args:
            content: content of the request, to detect an id that is used for two requests.

        Raises:
            Refusal: there is no such lease, another call runs, or the environment is unavailable or broken.
        """
        lease = self.find(lease_id)
        if request_id is not None and request_id in lease.answers:
            before, task = lease.answers[request_id]
            if before != content:
                raise Refusal(
                    409, "REQUEST_ID_REUSED", f"request_id {request_id} was already used for another request"
                )
            return await _wait_for(task, lease_id)
        if lease.running is not None and not lease.running.done():
            raise Refusal(409, "LEASE_BUSY", "another call of this lease is running", 1.0)
        lease.running = task = asyncio.create_task(_run(work, lease.environment))
        task.add_done_callback(_retrieve_exception)
        if request_id is not None:
            lease.answers[request_id] = (content, task)
            while len(lease.answers) > MAX_ANSWERS:
                lease.answers.popitem(last=False)
        return await _wait_for(task, lease_id)

    def close(self, lease_id: str) -> bool:
        """Ends a lease, and closes its environment in the background; returns whether there was one."""
        lease = self.leases.pop(lease_id, None)
        if lease is None:
            return False
        self.ended[lease_id] = None
        while len(self.ended) > MAX_ENDED:
            self.ended.popitem(last=False)
        self.requests = {key: value for key, value in self.requests.items() if value != lease_id}
        task = asyncio.create_task(self._close(lease))
        self.closing.add(task)
        task.add_done_callback(self.closing.discard)
        return True

    async def _close(self, lease: Lease) -> None:
        try:
            async with self._closes:
                if lease.running is not None and not lease.running.done():
                    lease.running.cancel()
                    with contextlib.suppress(Exception, asyncio.CancelledError):
                        await lease.running
                await lease.environment.close()
        except Exception:
            logger.exception("the environment of %s could not be closed", lease.id)
        finally:
            await self._free(lease.task_key)

    def reap(self) -> list[str]:
        """Ends the leases without recent heartbeats."""
        oldest = self.clock() - self.limits.ttl
        expired = [lease.id for lease in self.leases.values() if lease.seen < oldest]
        for lease_id in expired:
            logger.warning("the lease %s had no heartbeat for %g s and is closed", lease_id, self.limits.ttl)
            self.close(lease_id)
        return expired

    async def close_all(self) -> None:
        """Ends all leases and waits until their environments are closed."""
        for lease_id in list(self.leases):
            self.close(lease_id)
        await asyncio.gather(*self.closing)

    def status(self) -> Json:
        active = Counter(lease.task_key for lease in self.leases.values())
        return {
            "max_runs": self.limits.max_runs,
            "max_tasks": self.limits.max_tasks,
            "active_tasks": len(active),
            "max_runs_per_task": self.limits.max_runs_per_task,
            "total_active_runs": len(self.leases),
            "pending_closes": len(self.closing),
            "waiting": self.waiting,
            "tasks": {key: {"active_runs": count} for key, count in active.items()},
        }


async def _run(work: Callable[[Environment], Awaitable[Json]], environment: Environment) -> Json:
    try:
        return await work(environment)
    except Refusal:
        raise
    except EnvironmentAway as error:
        raise Refusal(503, "ENVIRONMENT_AWAY", str(error)) from error
    except Exception as error:
        logger.exception("an environment raised an exception")
        raise Refusal(500, "ENVIRONMENT_ERROR", f"{type(error).__name__}: {error}") from error


async def _wait_for(task: asyncio.Task[Json], lease_id: str) -> Json:
    """Returns the answer; its task completes even if the waiting request is cancelled. Raises Refusal, also if the
    lease has ended meanwhile."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise Refusal(410, "LEASE_ENDED", f"the lease {lease_id} has ended") from None
        raise


def _retrieve_exception(task: asyncio.Task[Json]) -> None:
    """Retrieves the exception of an answer that no request waits for any more, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
