"""Implements the environment interface for an environment in a pool."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import httpx

from slime.agents import wire
from slime.agents.protocol import Action, Environment, Observation, Outcome, Start, Task
from slime.agents.wire import Json
from slime.errors import EnvironmentAway
from slime.pool.keys import bearer, key_of
from slime.pool.leases import PoolLimits
from slime.pool.service import pool_app

TRIES = 3
"""Attempts of a call whose connection broke: the pool carries out a request id only once, so retries are safe."""
RETRY_SECONDS = 0.2
HEARTBEATS = 4  # heartbeats during the lifetime of a lease
Answer = TypeVar("Answer")


class PoolEnvironment:
    """One episode in an environment of a pool or of a router over several.

    Waits while the pool is full or unavailable. Later failures (no connection, an expired lease, an exception in the
    environment) raise `EnvironmentAway`: the episode restarts in another environment.

    Args:
        url: address of the pool or router.
        key: its key; None: the key that a pool of this user on this machine has created, if there is one.
        patience: seconds to wait for a free environment.
        seconds: time-out of a response.
        transport: transport that replaces the network.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        patience: float = 300.0,
        seconds: float = 600.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        def with_key(request: httpx.Request) -> httpx.Request:
            # a restarted pool has another key
            request.headers.update(bearer(key_of(url) if key is None else key))
            return request

        encrypted = url.startswith("https:")  # loading certificates takes 20 ms
        self.http = httpx.AsyncClient(
            base_url=url, auth=with_key, timeout=seconds, transport=transport, verify=encrypted
        )
        self.url, self.patience = url, patience
        self.lease: str | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] | None = None

    async def reset(self, task: Task) -> Start:
        meta = wire.task_meta(task)
        digest = hashlib.sha256(json.dumps(meta, sort_keys=True, default=str).encode()).hexdigest()
        lease = await self._allocate(str(task.metadata.get("task_key") or digest[:16]))
        self.lease, self._lost = lease["lease_id"], asyncio.get_running_loop().create_future()
        self._heartbeats = asyncio.create_task(self._beat(lease["ttl"]))
        return await self._request("/reset", {"task_meta": meta}, wire.start_of)

    async def step(self, action: Action) -> Observation:
        return await self._request("/step", {"action": wire.action_body(action)}, wire.observation_of)

    async def evaluate(self) -> Outcome:
        return await self._request("/evaluate", {}, wire.outcome_of)

    async def close(self) -> None:
        """Releases the environment. If the pool does not answer, the lease ends at its time-out."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heartbeats
        if self.lease is not None:
            with contextlib.suppress(httpx.HTTPError):
                await self.http.post("/close", json={"lease_id": self.lease}, timeout=10.0)
            self.lease = None
        await self.http.aclose()

    async def _allocate(self, task_key: str) -> Json:
        """Requests a lease. Raises EnvironmentAway if no environment becomes free in time."""
        body = {"task_key": task_key, "request_id": secrets.token_hex(8)}
        until, problem = time.monotonic() + self.patience, "no answer"
        while time.monotonic() < until:
            wait = RETRY_SECONDS
            try:
                response = await self.http.post("/allocate", json=body, timeout=30.0)
                answer = _json(response)
                if response.status_code == 200:
                    return {"lease_id": str(answer["lease_id"]), "ttl": float(answer.get("ttl", 60.0))}
                problem = str(answer.get("error", response.status_code))
                if response.status_code not in (429, 502, 503):
                    raise EnvironmentAway(f"{self.url}: {problem}")
                wait = float(response.headers.get("Retry-After", wait))
            except (httpx.HTTPError, ValueError, KeyError) as error:
                problem = f"{type(error).__name__} {error}".strip()
            await asyncio.sleep(min(wait, max(until - time.monotonic(), 0)))
        raise EnvironmentAway(f"{self.url} provided no environment within {self.patience:g} s: {problem}")

    async def _request(self, path: str, body: Json, read: Callable[[Json], Answer]) -> Answer:
        """Sends a request and returns the parsed answer. Raises EnvironmentAway."""
        if self.lease is None or self._lost is None:
            raise EnvironmentAway("the environment was not reset, or is closed")
        request = {"lease_id": self.lease, "request_id": secrets.token_hex(8), **body}
        call = asyncio.create_task(self._post(path, request))
        try:
            either: list[asyncio.Future[Any]] = [call, self._lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise EnvironmentAway(f"{self.url}: the lease {self.lease} was lost")
            return read(call.result())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EnvironmentAway(f"{self.url}{path} returned an invalid response: {error!r}") from error
        finally:
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError, EnvironmentAway, ValueError):
                await call

    async def _post(self, path: str, request: Json) -> Json:
        for left in reversed(range(TRIES)):
            try:
                response = await self.http.post(path, json=request)
                answer = _json(response)
                if response.status_code == 200:
                    return answer
                if response.status_code != 502 or not left:
                    raise EnvironmentAway(f"{self.url}{path}: {response.status_code} {answer.get('error')}")
            except httpx.HTTPError as error:
                if not left or isinstance(error, httpx.TimeoutException):
                    raise EnvironmentAway(f"{self.url}{path}: {type(error).__name__} {error}") from error
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("unreachable")

    async def _beat(self, ttl: float) -> None:
        """Renews the lease until it is released. Marks it as lost if the pool no longer has it, or does not answer for
        its whole lifetime."""
        assert self._lost is not None
        answered_at = time.monotonic()
        while time.monotonic() - answered_at < ttl:
            await asyncio.sleep(ttl / HEARTBEATS)
            with contextlib.suppress(httpx.HTTPError):
                response = await self.http.post(
                    "/heartbeat", json={"lease_id": self.lease}, timeout=ttl / HEARTBEATS
                )
                if response.status_code in (401, 404, 410):
                    break
                if response.status_code == 200:
                    answered_at = time.monotonic()
        self._lost.set_result(None)


def _json(response: httpx.Response) -> Json:
    """Returns the response's JSON. Raises ValueError if it is not an object."""
    content = response.json()
    if not isinstance(content, dict):
        raise ValueError("the answer is not a JSON object")
    return content


@contextlib.asynccontextmanager
async def local_pool(
    make: Callable[[], Environment], limits: PoolLimits | None = None
) -> AsyncIterator[Callable[[], PoolEnvironment]]:
    """Runs a pool in this process and yields a factory of environments, with the same client and server code as over
    the network."""
    app = pool_app(make, limits)
    async with app.router.lifespan_context(app):
        yield lambda: PoolEnvironment("http://pool", transport=httpx.ASGITransport(app))
