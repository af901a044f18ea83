"""Runs the exchanges of one request and writes their answers in its dialect."""

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
"""Seconds after which a stream with held-back tokens (an incomplete tool call) sends an empty event: clients abort
streams without events, some after 60 seconds."""


class Dialect(Protocol):
    """Writes an answer in the format of one API: events if it is streamed, else one body.

    `index` is the number of the exchange within the request.
    """

    def start(self) -> bytes:
        """Returns bytes sent before the first chunk."""

    def chunk(self, index: int, chunk: Chunk) -> bytes:
        """Returns the bytes that a chunk adds; empty if none of it may be visible yet."""

    def waiting(self, index: int) -> bytes:
        """Returns an event without content, which keeps the stream alive."""

    def finished(self, index: int, answer: Completion) -> bytes:
        """Returns bytes sent when one exchange is finished and stored."""

    def end(self) -> bytes:
        """Returns bytes sent when all are finished."""

    def failure(self, error: ClientError) -> bytes:
        """Returns an error inside a running stream."""

    def error_body(self, error: ClientError) -> dict[str, Any]:
        """Returns an error as the whole response."""


async def prepare_all(gateway: Gateway, request: ChatRequest, caller: Caller, kind: str) -> list[Exchange]:
    """Returns the exchanges of a request, one for each requested answer, all in one session, each a separate turn.
    The next request of the conversation shows which of them it continues. `kind`: prefix of their ids.

    Raises ClientError, StoreError.
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
    """Returns the ids that start an answer which must be a tool call. Raises ClientError if the model's format has no
    such start."""
    if request.forced_tool is None:
        return []
    text = gateway.format.family.forced_call(request.forced_tool or None)
    if text is None:
        message = "tool_choice: this model's format of tool calls supports only none and auto"
        raise ClientError(message, "tool_choice", "unsupported_value")
    return gateway.tokenizer.encode_markup(text)


class AnswerResponse(Response):
    """Runs exchanges while their client is connected; a disconnect cancels them."""

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
            message = "the answer could not be recorded; nothing is wrong with the request"
            await self._fail(send, ClientError(message, code="not_stored", status=500, kind="server_error"))
        except OSError:
            pass  # the client disconnected; the exchange has stored its tokens
        except Exception:  # an internal error ends this answer, with an error that the client can parse
            outcome = "internal_error"
            log.exception("answer %s failed", self._exchanges[0].turn.completion_id)
            message = "internal server error; see the log of the gateway"
            await self._fail(send, ClientError(message, code=outcome, status=500, kind="server_error"))
        finally:
            self._metrics.answers.labels(outcome).inc()

    async def _run_all(self, send: Send) -> None:
        """Runs all exchanges. Raises the first error once all have ended."""
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
            _say_unfulfilled((exchange.request.forced_tool or "any tool")[:100])
        data = self._opening() + self._dialect.finished(index, answer)
        if data and self._streamed:
            await self._emit(send, data)
        self._metrics.whole.observe(time.perf_counter() - self._started)
        self._metrics.tokens.labels("prompt").inc(len(exchange.turn.prompt_ids))
        self._metrics.tokens.labels("completion").inc(len(exchange.generation.ids))
        self._access.prompt_tokens += len(exchange.turn.prompt_ids)
        self._access.completion_tokens += len(exchange.generation.ids)

    def _opening(self) -> bytes:
        """Returns the start of a stream, once."""
        if self._opened or not self._streamed:
            return b""
        self._opened = True
        return self._dialect.start()

    async def _emit(self, send: Send, data: bytes, more: bool = True) -> None:
        """Sends events of a stream, one at a time."""
        self._emitted = time.perf_counter()
        async with self._sending:
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            await send({"type": "http.response.body", "body": on_one_line(data), "more_body": more})

    async def _fail(self, send: Send, error: ClientError) -> None:
        """Sends an error object; in a running stream, as its last event."""
        if self._begun:
            await self._emit(send, self._dialect.failure(error), more=False)
        else:
            await _send_json(send, error.status, orjson.dumps(self._dialect.error_body(error)))


_UNICODE_LINE_ENDS = tuple(
    (mark.encode(), f"\\u{ord(mark):04x}".encode()) for mark in ("\u0085", "\u2028", "\u2029")
)


def on_one_line(events: bytes) -> bytes:
    """Escapes Unicode line ends in the JSON of events.

    In server-sent events only CR and LF end a line. Clients that split by Python's `str.splitlines`, such as httpx's
    `iter_lines`, would break at the others.
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
def _say_unfulfilled(tool: str) -> None:
    log.warning(
        "a client required a call of %s, but the model wrote no valid one: the answer is text, "
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
