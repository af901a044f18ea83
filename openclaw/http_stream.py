"""A small HTTP client for streamed answers: POST, then the body as it comes.

One answer is hundreds of chunks and an engine is one hop away: a general client spends more time on a chunk
than the gateway does. Connections are kept and used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import httptools

from openclaw.errors import EngineError

CONNECT_TIMEOUT_SECONDS = 2.0
IDLE_CONNECTIONS = 128
HIGH_WATER_BYTES = 1 << 20
"""Unread bytes of one answer from which on its sender is made to wait."""


class StreamClient:
    """Connections to servers by base address (`http://host:port`)."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Connection]] = {}

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()

    @asynccontextmanager
    async def post(self, base: str, path: str, body: bytes) -> AsyncGenerator[Connection, None]:
        """The answer to a POST of JSON: `status` is known, the body is read from it. Leaving early closes the
        connection, which tells the server. Raises EngineError when there is no answer or it breaks off."""
        connection = await self._send(base, path, body)
        try:
            yield connection
        finally:
            if connection.reusable and len(self._idle[base]) < IDLE_CONNECTIONS:
                self._idle[base].append(connection)
            else:
                connection.close()

    async def _send(self, base: str, path: str, body: bytes) -> Connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(base).netloc}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        idle = self._idle.setdefault(base, [])
        while idle:  # one that the server has closed meanwhile breaks off before its answer begins
            connection = idle.pop()
            try:
                await connection.request(request)
                return connection
            except EngineError:
                connection.close()
        connection = await _connect(base)
        try:
            await connection.request(request)
        except BaseException:
            connection.close()
            raise
        return connection


async def _connect(base: str) -> Connection:
    url = urlsplit(base)
    secure = url.scheme == "https"
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, url.hostname or "", url.port or (443 if secure else 80), ssl=secure or None
            )
    except (OSError, TimeoutError) as error:
        raise EngineError(f"{base} cannot be reached: {error or 'timeout'}") from error
    return connection


class Connection(asyncio.Protocol):
    """One connection, one answer at a time."""

    status = 0

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._complete = False
        self._paused = False
        self.status = 0
        self._wake: asyncio.Future[None] | None = None

    @property
    def reusable(self) -> bool:
        """Whether the whole answer was read and the server keeps the connection."""
        return self._complete and not self._lost and not self._body and self._parser.should_keep_alive()

    async def request(self, data: bytes) -> None:
        """Send, and wait until the answer's headers are there. Raises EngineError."""
        self._begin()
        if self._transport is None or self._lost:
            raise EngineError("the connection was closed")
        self._transport.write(data)
        await self._until(lambda: self.status > 0)

    async def read(self) -> bytes:
        """What has come of the body; empty at its end. Raises EngineError when it breaks off."""
        await self._until(lambda: bool(self._body) or self._complete)
        data = bytes(self._body)
        self._body.clear()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def read_all(self) -> bytes:
        """The rest of the body."""
        parts = []
        while part := await self.read():
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._lost:
                raise EngineError("the connection broke off")
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._lost = True
            self.close()
        if len(self._body) > HIGH_WATER_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._notify()

    # httptools

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self._complete = True
