"""Runs the generations of a request, and writes the response in the format of its API dialect."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw.errors import ClientError, StoreError
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import ChatRequest
from openclaw.gateway.exchange import Chunk, Completion, Exchange
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.running import RunningAnswers
from openclaw.http.metrics import Metrics
from openclaw.http.middleware import access_of

log = logging.getLogger(__name__)

QUIET_SECONDS = 10.0
"""Seconds without visible tokens (a tool call in progress) after which a stream sends an empty event.

Some clients abort a stream after 60 seconds without an event.
"""


class Dialect(Protocol):
    """The response format of one API: a stream of events, or one body.

    `index` is the number of the answer within the request.
    """

    def start(self) -> bytes:
        """Returns the bytes to send before the first chunk."""

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        """Returns the bytes for a chunk; empty if none of its text may be sent yet."""

    def waiting(self, index: int) -> bytes:
        """Returns an event without content, which keeps the stream alive."""

    def finished(self, index: int, answer: Completion) -> bytes:
        """Returns the bytes to send when an answer is complete and stored."""

    def end(self) -> bytes:
        """Returns the bytes to send when all answers are complete; without streaming, the whole body."""

    def failure(self, error: ClientError) -> bytes:
        """Returns an error as an event of a running stream."""

    def error_body(self, error: ClientError) -> dict[str, Any]:
        """Returns an error as the body of a response."""


async def prepare_all(gateway: Gateway, request: ChatRequest, caller: Caller, kind: str) -> list[Exchange]:
    """Returns one exchange for each requested answer (`n`); all belong to one session, each to a turn of its own.

    The next request of the conversation shows which of the answers it continues.

    Args:
        kind: prefix of the completion ids.

    Raises:
        ClientError, StoreError.
    """
    opening = _opening(gateway, request)
    exchanges: list[Exchange] = []
    for index in range(request.n):
        asked, seed = request, request.sampling.get("sampling_seed")
        if index and seed is not None:
            asked = replace(request, sampling={**request.sampling, "sampling_seed": seed + index})
        exchange = await gateway.prepare(asked, caller, kind)
        exchanges.append(exchange.opened(opening, gateway.context_length) if opening else exchange)
        caller = replace(caller, scope=exchange.turn.session_id)
    return exchanges


def _opening(gateway: Gateway, request: ChatRequest) -> list[int]:
    """Returns the token ids at which a required tool call starts; [] if none is required.

    Raises ClientError if the tool-call format of the model has no fixed start.
    """
    if request.forced_tool is None:
        return []
    text = gateway.format.family.forced_call(request.forced_tool or None)
    if text is None:
        message = (
            "tool_choice must be none or auto: the tool-call format of this model supports no other value"
        )
        raise ClientError(message, "tool_choice", "unsupported_value")
    return gateway.tokenizer.encode_markup(text)


class AnswerResponse(Response):
    """A response that runs its exchanges while the client is connected, and cancels them after a disconnect."""

    def __init__(
        self, request: Request, exchanges: Sequence[Exchange], dialect: Dialect, streamed: bool
    ) -> None:
        super().__init__()
        self._exchanges = exchanges
        self._dialect = dialect
        self._streamed = streamed
        self._metrics: Metrics = request.app.state.metrics
        self._running: RunningAnswers = request.app.state.gateway.running
        self._started = time.perf_counter()
        self._first: float | None = None
        self._emitted = self._started
        self._opened = self._begun = False
        self._sending = asyncio.Lock()
        self._access = access_of(request.scope)
        self._access.session = exchanges[0].turn.session_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        serving = asyncio.create_task(self._serve(send))
        leaving = asyncio.create_task(_disconnected(receive))
        self._metrics.open.inc()
        try:
            await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._metrics.open.dec()
            leaving.cancel()
            if not serving.done():
                serving.cancel()
            await asyncio.wait((serving, leaving))
            for exchange in self._exchanges:
                exchange.end()
        if not serving.cancelled():
            serving.result()

    async def _serve(self, send: Send) -> None:
        outcome = "aborted"
        try:
            await self._run_all(send)
            if self._streamed:
                await self._emit(send, self._dialect.end(), more=False)
            else:
                await _send_json(send, 200, self._dialect.end())
            outcome = "complete"
        except ClientError as error:
            outcome = error.code or "refused"
            await self._fail(send, error)
        except StoreError as error:
            outcome = "not_stored"
            log.error("answer %s was not stored: %s", self._exchanges[0].turn.completion_id, error)
            message = "the answer could not be stored; the request is valid and can be sent again"
            await self._fail(send, ClientError(message, code="not_stored", status=500, kind="server_error"))
        except OSError:
            pass  # the client disconnected; the exchange has stored its tokens
        except Exception:  # the client gets an error object instead of a closed connection
            outcome = "internal_error"
            log.exception("answer %s failed", self._exchanges[0].turn.completion_id)
            message = "internal server error; the gateway's log has the details"
            await self._fail(send, ClientError(message, code=outcome, status=500, kind="server_error"))
        finally:
            self._metrics.answers.labels(outcome).inc()

    async def _run_all(self, send: Send) -> None:
        """Runs all exchanges. Raises the first error after all have ended."""
        if len(self._exchanges) == 1:
            await self._run(0, send)
            return
        tasks = [asyncio.create_task(self._run(index, send)) for index in range(len(self._exchanges))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run(self, index: int, send: Send) -> None:
        exchange = self._exchanges[index]

        async def on_chunk(chunk: Chunk) -> None:
            data = self._opening() + self._dialect.chunk(index, chunk)
            if self._first is None:
                self._first = time.perf_counter() - self._started
                self._metrics.first_token.observe(self._first)
            if not data and self._streamed and time.perf_counter() - self._emitted > QUIET_SECONDS:
                data = self._dialect.waiting(index)
            if data and self._streamed:
                await self._emit(send, data)

        async with self._running.place(exchange.turn.turn_type):
            answer = await exchange.run(on_chunk)
        if exchange.unfulfilled(answer):
            _warn_unfulfilled((exchange.request.forced_tool or "any tool")[:100])
        data = self._opening() + self._dialect.finished(index, answer)
        if data and self._streamed:
            await self._emit(send, data)
        self._metrics.whole.observe(time.perf_counter() - self._started)
        self._metrics.tokens.labels("prompt").inc(len(exchange.turn.prompt_ids))
        self._metrics.tokens.labels("completion").inc(len(exchange.generation.ids))
        self._access.prompt_tokens += len(exchange.turn.prompt_ids)
        self._access.completion_tokens += len(exchange.generation.ids)

    def _opening(self) -> bytes:
        """Returns the start of a stream the first time, then nothing."""
        if self._opened or not self._streamed:
            return b""
        self._opened = True
        return self._dialect.start()

    async def _emit(self, send: Send, data: bytes, more: bool = True) -> None:
        """Sends events of a stream; concurrent answers take turns."""
        self._emitted = time.perf_counter()
        async with self._sending:
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await send({"type": "http.response.body", "body": on_one_line(data), "more_body": more})

    async def _fail(self, send: Send, error: ClientError) -> None:
        """Sends an error object; in a running stream, as the last event."""
        if self._begun:
            await self._emit(send, self._dialect.failure(error), more=False)
        else:
            await _send_json(send, error.status, orjson.dumps(self._dialect.error_body(error)))


_UNICODE_LINE_ENDS = tuple(
    (mark.encode(), f"\\u{ord(mark):04x}".encode()) for mark in ("\u0085", "\u2028", "\u2029")
)


def on_one_line(events: bytes) -> bytes:
    """Returns events with the Unicode line ends in their JSON escaped.

    In server-sent events only CR and LF end a line. Clients that use `str.splitlines` of Python, such as `iter_lines`
    of httpx, would also split at the others.
    """
    for mark, spelled in _UNICODE_LINE_ENDS:
        if mark in events:
            events = events.replace(mark, spelled)
    return events


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@lru_cache(maxsize=100)
def _warn_unfulfilled(tool: str) -> None:
    log.warning(
        "tool_choice required a call of %s, but the model generated no valid call: the answer is text, "
        'with "tool_choice_fulfilled": false',
        tool,
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_json(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
