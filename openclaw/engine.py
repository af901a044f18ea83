"""Client of inference engines over SGLang's native HTTP API: connections, streams, health."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import httpx
import orjson

from openclaw.errors import ClientError, EngineError
from openclaw.http_stream import Connection, StreamClient

log = logging.getLogger(__name__)

PROBE_TIMEOUT_SECONDS = 2.0
READY_POLL_SECONDS = 0.2
REFUSED = (400, 413, 422)
"""HTTP status with which an engine says that the request is wrong; any other failure is the engine's."""


class Engines:
    """The engines behind one gateway.

    Args:
        urls: base addresses. A session prefers one of them, always the same.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self._streams = StreamClient()
        self._http = httpx.AsyncClient(timeout=PROBE_TIMEOUT_SECONDS, trust_env=False)
        self._farewells: set[asyncio.Task[None]] = set()
        self.restarts = 0
        """How often a generation had to start again on an engine."""

    async def close(self) -> None:
        self._streams.close()
        await self._http.aclose()

    def preferred(self, affinity: str) -> list[str]:
        """All engines, best first for a session (rendezvous hashing: one engine more moves few sessions)."""
        if len(self.urls) == 1:
            return self.urls
        return sorted(self.urls, key=lambda url: hashlib.blake2b(f"{affinity} {url}".encode()).digest())

    async def info(self, url: str) -> dict[str, Any] | None:
        """`/model_info` of an engine; None while it does not answer."""
        try:
            answer = await self._http.get(f"{url}/model_info")
            found = orjson.loads(answer.content) if answer.status_code == 200 else None
        except (httpx.HTTPError, orjson.JSONDecodeError):
            return None
        return found if isinstance(found, dict) else None

    async def ready(self) -> bool:
        """Whether at least one engine answers."""
        return any([await self.info(url) is not None for url in self.urls])

    async def wait_ready(self) -> None:
        """Returns once an engine answers."""
        while True:
            if await self.ready():
                return
            await asyncio.sleep(READY_POLL_SECONDS)

    async def stream(self, url: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The newest cumulative answer, again and again, until the last. Raises EngineError when the engine
        is not there or breaks off, ClientError when it refuses the request."""
        async with self._streams.post(url, "/generate", orjson.dumps(body)) as answer:
            if answer.status != 200:
                raise _refusal(answer.status, await answer.read_all())
            async for cumulative in _answers(answer):
                yield cumulative

    def abort(self, url: str, request_id: str) -> None:
        """Tell an engine to stop working for a request that nobody waits for. Does not wait."""
        task = asyncio.get_running_loop().create_task(self._abort(url, request_id))
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _abort(self, url: str, request_id: str) -> None:
        try:
            await self._http.post(
                f"{url}/abort_request", json={"rid": request_id}, timeout=PROBE_TIMEOUT_SECONDS
            )
        except httpx.HTTPError as error:
            log.info("abort of %s did not reach %s: %s", request_id, url, error)


async def _answers(connection: Connection) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events to answers. Answers are cumulative, so of several that came together the last is
    enough."""
    buffer = b""
    while chunk := await connection.read():
        buffer += chunk
        end = buffer.rfind(b"\n\n")
        if end < 0:
            continue
        events, buffer = buffer[:end], buffer[end + 2 :]
        data = [event[6:] for event in events.split(b"\n\n") if event.startswith(b"data: {")]
        if not data:
            continue
        try:
            answer = orjson.loads(data[-1])
        except orjson.JSONDecodeError as error:
            raise EngineError(f"a chunk that is not JSON: {error}") from error
        if "error" in answer:
            raise _refusal(answer["error"].get("code", 500), data[-1])
        yield answer


def _refusal(status: int, body: bytes) -> ClientError | EngineError:
    try:
        message = orjson.loads(body)["error"]["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = body[:500].decode("utf-8", "replace")
    if status in REFUSED:
        return ClientError(f"the engine refused the request: {message}")
    return EngineError(f"status {status}: {message}")
