"""Guards every request: body size, rate, read and write timeouts; adds the sender as headers.

Plain ASGI: it costs a few microseconds a request and a fraction of one a streamed chunk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openclaw.errors import ClientError
from openclaw.gateway.headers import PEER_HEADER, PERSON_HEADER
from openclaw.http.auth import key_name
from openclaw.http.middleware.rate_limit import RateLimit
from openclaw.settings import Settings

log = logging.getLogger(__name__)

_OWN = (PERSON_HEADER.encode(), PEER_HEADER.encode())
LIMITED = ("/v1/", "/sessions/")
"""Paths on which the rate is limited."""


class RequestGuard:
    """Middleware. A refusal is an OpenAI error object."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._rate = RateLimit(settings.rate_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            name = key_name(headers, self._settings) if self._settings.client_keys else None
            self._check_rate(scope, name)
            self._check_length(headers)
        except ClientError as error:
            await _refuse(send, error)
            return
        scope = {**scope, "headers": _with_sender(scope, name)}
        body = _Body(receive, self._settings)
        reader = _Reader(send, self._settings.client_timeout)
        with reader:
            try:
                await self._app(scope, body.receive, reader.send)
            except ClientDisconnect:
                log.info("a client left before its request was whole")
            except asyncio.CancelledError:
                if not reader.gave_up:
                    raise
                log.info("a client that did not read its answer was let go")

    def _check_rate(self, scope: Scope, name: str | None) -> None:
        if not scope["path"].startswith(LIMITED):
            return
        client = scope.get("client")
        wait = self._rate.take(f"key {name}" if name is not None else f"address {client and client[0]}")
        if wait:
            raise ClientError(
                f"more than {self._settings.rate_limit:g} requests a minute; try again in {wait:g} seconds",
                code="rate_limit_exceeded", status=429, kind="rate_limit_error", retry_after=wait,
            )  # fmt: skip

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise _too_long(self._settings)


class _Body:
    """Counts and times a request's body."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self._receive = receive
        self._settings = settings
        self._deadline = asyncio.get_running_loop().time() + settings.client_timeout
        self._bytes = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            text = f"the request body did not come within {self._settings.client_timeout:g} seconds"
            raise ClientError(text, code="request_timeout", status=408) from error
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._settings.max_body_bytes:
            raise _too_long(self._settings)
        self._complete = not message.get("more_body", False)
        return message


class _Reader:
    """Cancels the request of a client that does not read: one send has waited for the timeout. What the gateway
    holds for a slow client is bounded by the connection's buffers: until they have room, no more is taken from
    the engine."""

    def __init__(self, send: Send, timeout: float) -> None:
        self._send = send
        self._timeout = timeout
        self._since: float | None = None
        self.gave_up = False

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(self._timeout, self._look)

    def __exit__(self, *about: Any) -> None:
        self._timer.cancel()

    async def send(self, message: Message) -> None:
        self._since = self._loop.time()
        await self._send(message)
        self._since = None

    def _look(self) -> None:
        waited = 0.0 if self._since is None else self._loop.time() - self._since
        if waited < self._timeout:
            self._timer = self._loop.call_later(self._timeout - waited, self._look)
        elif self._task is not None:
            self.gave_up = True
            self._task.cancel()


def _with_sender(scope: Scope, name: str | None) -> list[tuple[bytes, bytes]]:
    client = scope.get("client")
    kept = [(key, value) for key, value in scope["headers"] if key not in _OWN]
    kept.append((PEER_HEADER.encode(), str(client[0] if client else "").encode()))
    return [*kept, (PERSON_HEADER.encode(), name.encode())] if name else kept


def _too_long(settings: Settings) -> ClientError:
    message = f"the request body is longer than {settings.max_body_bytes} bytes (MAX_BODY_BYTES)"
    return ClientError(message, code="request_too_large", status=413)


async def _refuse(send: Send, error: ClientError) -> None:
    body = orjson.dumps(error.body())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(round(error.retry_after)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
