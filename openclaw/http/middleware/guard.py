"""Guards every request: headers, size of the body, rate, what a client has open, timeouts; adds the sender as headers.

Plain ASGI: it costs a few microseconds a request and a fraction of one a streamed chunk. Sizes of headers: `protocol.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

import orjson
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openclaw.errors import ClientError
from openclaw.gateway.caller import PEER_HEADER, PERSON_HEADER
from openclaw.http.auth import key_name
from openclaw.settings import Settings

log = logging.getLogger(__name__)

LIMITED = ("/v1/", "/sessions/")
"""Paths on which the rate is limited."""
REMEMBERED_CLIENTS = 10_000
ONCE = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"content-length"})
"""Who reads the first and who reads the last of two of these, such as a proxy before this server, would disagree."""
_OWN = (PERSON_HEADER.encode(), PEER_HEADER.encode())
RETRY_SECONDS = 1.0


class RequestGuard:
    """Middleware. A refusal is an OpenAI error object."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._rate = RateLimit(settings.rate_limit)
        self._shares = Shares(settings.max_open_requests, settings.max_open_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            name = key_name(headers, self._settings) if self._settings.client_keys else None
            check_once(scope)
            self._check_rate(scope, name)
            self._check_length(headers)
        except ClientError as error:
            await _refuse(send, error)
            return
        share = self._shares.of(_client(scope, name)) if scope["path"].startswith(LIMITED) else Share(0, 0)
        scope = {**scope, "headers": with_sender(scope, name)}
        body = _Body(receive, self._settings, share)
        reader = _Reader(send, self._settings.client_timeout)
        with reader, body:
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
        wait = self._rate.take(_client(scope, name))
        if wait:
            raise ClientError(
                f"more than {self._settings.rate_limit:g} requests a minute; try again in {wait:g} seconds",
                code="rate_limit_exceeded", status=429, kind="rate_limit_error", retry_after=wait,
            )  # fmt: skip

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise _too_long(self._settings)


class RateLimit:
    """A bucket of requests for each client, filled evenly.

    Args:
        per_minute: requests that a client may make a minute, all at once too; 0: no limit.
    """

    def __init__(self, per_minute: float) -> None:
        self._size = max(per_minute, 1.0)
        self._per_second = per_minute / 60
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """0 when the request is allowed, else the seconds until it is."""
        if not self._per_second:
            return 0.0
        now = time.monotonic()
        tokens, filled = self._buckets.pop(client, (self._size, now))
        tokens = min(self._size, tokens + (now - filled) * self._per_second)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > REMEMBERED_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else math.ceil((1 - tokens) / self._per_second)


class _Body:
    """Counts and times a request's body; while entered, the request counts in its client's share."""

    def __init__(self, receive: Receive, settings: Settings, share: Share) -> None:
        self._receive = receive
        self._share = share
        self._settings = settings
        self._deadline = asyncio.get_running_loop().time() + settings.client_timeout
        self._bytes = 0
        self._complete = False

    def __enter__(self) -> None:
        self._share.requests += 1

    def __exit__(self, *about: object) -> None:
        self._share.requests -= 1
        self._share.bytes -= self._bytes

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            text = f"the request body did not come within {self._settings.client_timeout:g} seconds"
            raise ClientError(text, code="request_timeout", status=408) from error
        length = len(message.get("body", b""))
        self._bytes, self._share.bytes = self._bytes + length, self._share.bytes + length
        self._share.check()
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

    def __exit__(self, *about: object) -> None:
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


def _client(scope: Scope, name: str | None) -> str:
    """Who is limited: a key, or an address where no key is asked."""
    client = scope.get("client")
    return f"key {name}" if name is not None else f"address {client and client[0]}"


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


def check_once(scope: Scope) -> None:
    """Raises ClientError (400) for a header that is there twice and may not be."""
    names = [name for name, _ in scope["headers"] if name in ONCE]
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode()
        raise ClientError(f"the request has more than one {twice} header", code="invalid_header")


def with_sender(scope: Scope, name: str | None) -> list[tuple[bytes, bytes]]:
    """The headers with the client's address and the name of its key; what it sent under these names is left out."""
    client = scope.get("client")
    kept = [(key, value) for key, value in scope["headers"] if key not in _OWN]
    kept.append((PEER_HEADER.encode(), str(client[0] if client else "").encode()))
    return [*kept, (PERSON_HEADER.encode(), name.encode())] if name else kept


@dataclass(eq=False)
class Share:
    """What one client has open now, and may have at most; 0: no limit."""

    most_requests: int
    most_bytes: int
    requests: int = 0
    bytes: int = 0

    def check(self) -> None:
        """Raises ClientError (429) when it is too much."""
        for have, most, what in (
            (self.requests, self.most_requests, "requests are open (MAX_OPEN_REQUESTS)"),
            (self.bytes, self.most_bytes, "bytes of bodies are in open requests (MAX_OPEN_BYTES)"),
        ):
            if most and have > most:
                raise ClientError(
                    f"more than {most} {what} of this key or address; try again when some have ended",
                    code="too_many_open_requests", status=429, kind="rate_limit_error", retry_after=RETRY_SECONDS,
                )  # fmt: skip


class Shares:
    """The shares of all clients that have something open; an idle client costs nothing."""

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self._most = most_requests, most_bytes
        self._open: WeakValueDictionary[str, Share] = WeakValueDictionary()

    def of(self, client: str) -> Share:
        """The share of a client, kept while any of its requests holds it."""
        share = self._open.get(client)
        if share is None:
            share = self._open[client] = Share(*self._most)
        return share
