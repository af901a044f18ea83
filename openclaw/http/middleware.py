"""Middleware for all requests, outermost first.

* `HttpProtocol`: the HTTP parser of uvicorn, with limits on the size and time of headers.
* `AccessLog`: logs a line for each request: method, path, status, time, tokens, session; never content, keys or persons.
* `RequestGuard`: limits body size, rate, open requests and time; adds headers that identify the client.
* `FastRoute`: bypasses FastAPI routing for the most frequent path.

It checks bytes, addresses and times. The dialects and the gateway validate the content of bodies. Plain ASGI: it costs
a few microseconds a request, and less than one for each streamed chunk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openclaw.errors import ClientError, StoreError
from openclaw.gateway.caller import PEER_HEADER, PERSON_HEADER
from openclaw.http.auth import key_name
from openclaw.http.limits import RateLimit, Share, Shares, network_of
from openclaw.settings import Settings

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

log = logging.getLogger(__name__)

LONGEST_HEAD = 64 << 10
"""Most bytes of URL, headers, trailers and chunk extensions of a request."""
_HEADER_OVERHEAD = len(b": \r\n")
_HEADERS_TOO_LARGE_BODY = b'{"error":{"message":"URL and headers are longer than %d bytes",' % LONGEST_HEAD
_HEADERS_TOO_LARGE_BODY += b'"type":"invalid_request_error","param":null,"code":"headers_too_large"}}'
_HEADERS_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
)
_HEADERS_TOO_LARGE += b"content-length: %d\r\n\r\n%s" % (
    len(_HEADERS_TOO_LARGE_BODY),
    _HEADERS_TOO_LARGE_BODY,
)


class HttpProtocol(HttpToolsProtocol):
    """A connection with a limit on the bytes outside bodies: URL, headers, trailers, chunk extensions.

    Above the limit the connection is closed. It is also closed if no complete headers arrive within `head_seconds`,
    because idle connections use file descriptors.
    """

    head_seconds = 60.0
    _head_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread, self._refused = 0, False
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._time_out)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _time_out(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # the client pipelines: it sent its next request before this response was complete
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > LONGEST_HEAD and not self.transport.is_closing():
            self._reject()

    def send_400_response(self, msg: str) -> None:
        """Closes a connection whose bytes cannot be parsed, or whose headers are too long."""
        if self._refused:
            self._reject()
        else:
            super().send_400_response(msg)

    def _reject(self) -> None:
        log.info("connection closed: request headers exceed %d bytes", LONGEST_HEAD)
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_HEADERS_TOO_LARGE)
        self.transport.close()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        length = len(self.url) + sum(
            len(name) + len(value) + _HEADER_OVERHEAD for name, value in self.headers
        )
        if length > LONGEST_HEAD:
            self._refused = True
            raise ValueError(length)  # the parser stops and calls `send_400_response`
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()


def protocol_for(seconds: float) -> type[HttpProtocol]:
    """Returns a protocol class with another `head_seconds`."""
    return type("HttpProtocol", (HttpProtocol,), {"head_seconds": seconds})


access_log = logging.getLogger("openclaw.access")

QUIET = ("/healthz", "/readyz", "/health", "/metrics", "/status", "/v1/turns/", "/admin/", "/static/")
"""Paths that programs poll; their requests are logged at level debug."""
CLIENT_CLOSED = 499
"""Logged status of a request whose client disconnected before the response began, as in nginx."""
_KEY = "openclaw.access"


@dataclass
class Access:
    """Data that a route adds to the log line of its request."""

    session: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def access_of(scope: MutableMapping[str, Any]) -> Access:
    """Returns the log record of a request; an unused record if the request is not logged."""
    access = scope.get(_KEY)
    return access if isinstance(access, Access) else Access()


class AccessLog:
    """Logs a line for each request. It is the outermost middleware, so that rejected requests are logged too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        level = logging.DEBUG if scope.get("path", "").startswith(QUIET) else logging.INFO
        if scope["type"] != "http" or not access_log.isEnabledFor(level):
            await self.app(scope, receive, send)
            return
        access, status, began = Access(), CLIENT_CLOSED, time.perf_counter()

        async def send_and_record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app({**scope, _KEY: access}, receive, send_and_record_status)
        except Exception:
            status = 500
            raise
        finally:
            access_log.log(level, "%s", _line(scope, status, time.perf_counter() - began, access))


def _line(scope: Scope, status: int, seconds: float, access: Access) -> str:
    words = [scope["method"], quote(scope["path"]), str(status), f"{1000 * seconds:.0f}ms"]
    if access.session:
        words += [
            f"prompt={access.prompt_tokens}",
            f"completion={access.completion_tokens}",
            f"session={quote(access.session, safe=':@+,')}",
        ]
    return " ".join(words)


LIMITED = ("/v1/", "/sessions/")
"""Path prefixes with a rate limit."""
PROBES = frozenset({"/healthz", "/readyz", "/health", "/metrics", "/status"})
"""Paths that are exempt from the limits on open requests."""
UNIQUE = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"content-length"})
UNIQUE |= {b"x-train", b"x-memory", b"x-session-id", b"x-session-done", b"x-turn-type"}
"""Headers that must not occur twice: a proxy and this server could use different values."""
_OWN = (PERSON_HEADER.encode(), PEER_HEADER.encode())


class RequestGuard:
    """Middleware that enforces limits and adds the identity of the client. Errors are OpenAI error objects."""

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
            share = self._share(scope, name)
        except ClientError as error:
            await _refuse(scope, send, error)
            return
        scope = {**scope, "headers": with_sender(scope, name)}
        body = _Body(receive, self._settings, share)
        reader = _Reader(send, self._settings.client_timeout)
        with reader, body:
            try:
                await self._app(scope, body.receive, reader.send)
            except ClientDisconnect:
                log.info("client disconnected before its request was complete")
            except asyncio.CancelledError:
                if not reader.timed_out:
                    raise
                log.info("connection closed: the client did not read the response within CLIENT_TIMEOUT")

    def _check_rate(self, scope: Scope, name: str | None) -> None:
        if not scope["path"].startswith(LIMITED):
            return
        wait = self._rate.take(_client(scope, name))
        if wait:
            raise ClientError(
                f"Rate limit reached: more than {self._settings.rate_limit:g} requests a minute; try again in "
                f"{wait:g} seconds",
                code="rate_limit_exceeded", status=429, kind="rate_limit_error", retry_after=wait,
            )  # fmt: skip

    def _share(self, scope: Scope, name: str | None) -> Share:
        """Returns the share of open requests of a client. Raises ClientError (429) if it is used up.

        Administration and the page have a separate share, so that API requests cannot block them.
        """
        if scope["path"] in PROBES:
            return Share(0, 0)
        client = _client(scope, name)
        share = self._shares.of(client if scope["path"].startswith(LIMITED) else f"page {client}")
        share.check(more=1)
        return share

    def _check_length(self, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise _too_long(self._settings)


class _Body:
    """Limits the size and time of a request body. The request counts in its share until the response has ended."""

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
            text = f"the request body was not received within {self._settings.client_timeout:g} seconds (CLIENT_TIMEOUT)"
            raise ClientError(text, code="request_timeout", status=408) from error
        length = len(message.get("body", b""))
        self._bytes, self._share.bytes = self._bytes + length, self._share.bytes + length
        self._share.check()
        if self._bytes > self._settings.max_body_bytes:
            raise _too_long(self._settings)
        self._complete = not message.get("more_body", False)
        return message


class _Reader:
    """Cancels the request of a client that does not read the response for `timeout` seconds.

    The buffers of the connection limit the memory that a slow client uses: while they are full, the gateway reads no
    more tokens from the engine.
    """

    def __init__(self, send: Send, timeout: float) -> None:
        self._send = send
        self._timeout = timeout
        self._since: float | None = None
        self.timed_out = False

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(self._timeout, self._check_progress)

    def __exit__(self, *about: object) -> None:
        self._timer.cancel()

    async def send(self, message: Message) -> None:
        self._since = self._loop.time()
        await self._send(message)
        self._since = None

    def _check_progress(self) -> None:
        waited = 0.0 if self._since is None else self._loop.time() - self._since
        if waited < self._timeout:
            self._timer = self._loop.call_later(self._timeout - waited, self._check_progress)
        elif self._task is not None:
            self.timed_out = True
            self._task.cancel()


def _client(scope: Scope, name: str | None) -> str:
    """Returns the name of a client for limits: that of its key, else its address."""
    client = scope.get("client")
    return f"key {name}" if name is not None else f"address {network_of(client[0] if client else '')}"


def _too_long(settings: Settings) -> ClientError:
    message = f"the request body is longer than {settings.max_body_bytes} bytes (MAX_BODY_BYTES)"
    return ClientError(message, code="request_too_large", status=413)


async def _refuse(scope: Scope, send: Send, error: ClientError) -> None:
    body = orjson.dumps(error.body_for(scope["path"]))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(round(error.retry_after)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def check_once(scope: Scope) -> None:
    """Raises ClientError (400) if a header that must be unique occurs twice."""
    names = [name for name, _ in scope["headers"] if name in UNIQUE]
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode()
        raise ClientError(
            f"the request has more than one {twice} header; send it once", code="invalid_header"
        )


def with_sender(scope: Scope, name: str | None) -> list[tuple[bytes, bytes]]:
    """Returns the headers with the address of the client and the name of its key.

    Headers of these names that the client sent are removed.
    """
    client = scope.get("client")
    kept = [(key, value) for key, value in scope["headers"] if key not in _OWN]
    kept.append((PEER_HEADER.encode(), str(client[0] if client else "").encode()))
    return [*kept, (PERSON_HEADER.encode(), name.encode())] if name else kept


Handler = Callable[[Request], Awaitable[Response]]
Failure = Callable[[Request, Exception], Awaitable[Response]]


class FastRoute:
    """Middleware that calls the handlers of some POST routes directly.

    Args:
        handlers: handler by path.
        failure: creates the response for an error.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[str, Handler], failure: Failure) -> None:
        self._app = app
        self._handlers = handlers
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["type"] == "http" and scope["method"] == "POST"
        handler = self._handlers.get(scope["path"]) if posted else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await handler(request)
        except (ClientError, StoreError) as error:
            response = await self._failure(request, error)
        await response(scope, receive, send)
