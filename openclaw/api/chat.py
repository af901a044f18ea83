"""POST /v1/chat/completions: streamed or not, one path."""

from __future__ import annotations

import asyncio
import logging
import time

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw.api.auth import check_client
from openclaw.api.metrics import Metrics
from openclaw.api.schema import chat_request, parse_body
from openclaw.api.wire import Chunks, Whole
from openclaw.errors import ClientError, StoreError
from openclaw.exchange import Answer, Exchange, Piece
from openclaw.gateway import Gateway, Origin

log = logging.getLogger(__name__)
router = APIRouter()


@router.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    return await _chat(request, None)


@router.post("/sessions/{session_id}/v1/chat/completions")
async def chat_in_session(request: Request, session_id: str) -> Response:
    return await _chat(request, session_id)


async def _chat(request: Request, path_session: str | None) -> Response:
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    body = parse_body(await request.body())
    if body.get("messages"):
        checked = chat_request(body)
        origin = Origin.of(request.headers, body, path_session, gateway.settings.default_turn_type)
        return ChatResponse(await gateway.prepare(checked, origin), gateway, request.app.state.metrics)
    origin = Origin.of(request.headers, body, path_session, gateway.settings.default_turn_type)
    if origin.done and origin.scope and not body.get("messages"):
        if gateway.recorder:
            await gateway.recorder.end_session(origin.scope)
        return _json(200, {"object": "session", "session_id": origin.scope, "session_done": True})
    chat_request(body)
    raise AssertionError("a request without messages was accepted")


class ChatResponse(Response):
    """Runs an exchange while its client listens; a client that leaves ends it."""

    def __init__(self, exchange: Exchange, gateway: Gateway, metrics: Metrics) -> None:
        super().__init__()
        self._exchange = exchange
        self._gateway = gateway
        self._metrics = metrics
        self._started = time.perf_counter()
        self._first: float | None = None

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
            await (self._stream(send) if self._exchange.request.stream else self._whole(send))
            outcome = "complete"
        except ClientError as error:
            outcome = error.code or "refused"
            await self._fail(send, error)
        except StoreError as error:
            outcome = "not_stored"
            log.error("answer %s was not stored: %s", self._exchange.id, error)
            message = "the answer could not be recorded; nothing is wrong with the request"
            await self._fail(send, ClientError(message, code="not_stored", status=500, kind="server_error"))
        except OSError:
            pass  # the connection went away; the exchange has stored what there was
        finally:
            self._metrics.answers.labels(outcome).inc()

    async def _whole(self, send: Send) -> None:
        whole = Whole(self._exchange, self._gateway.model_name, self._gateway.tokenizer)

        async def on_piece(piece: Piece) -> None:
            self._note_first()
            whole.piece(piece)

        answer = await self._exchange.run(on_piece)
        await _send_json(send, 200, whole.end(answer))
        self._note_end(answer)

    async def _stream(self, send: Send) -> None:
        chunks = Chunks(self._exchange, self._gateway.model_name, self._gateway.tokenizer)

        async def on_piece(piece: Piece) -> None:
            data = chunks.piece(piece)
            if self._first is None:
                self._note_first()
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
                data = chunks.start() + data
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})

        answer = await self._exchange.run(on_piece)
        await send({"type": "http.response.body", "body": chunks.end(answer), "more_body": False})
        self._note_end(answer)

    async def _fail(self, send: Send, error: ClientError) -> None:
        """An error object; inside a stream that has begun, as its last event, without `[DONE]`."""
        body = orjson.dumps(error.body())
        if self._first is None or not self._exchange.request.stream:
            await _send_json(send, error.status, body)
        else:
            await send({"type": "http.response.body", "body": b"data: " + body + b"\n\n", "more_body": False})

    def _note_first(self) -> None:
        if self._first is None:
            self._first = time.perf_counter() - self._started
            self._metrics.first_token.observe(self._first)

    def _note_end(self, answer: Answer) -> None:
        self._metrics.whole.observe(time.perf_counter() - self._started)
        self._metrics.tokens.labels("prompt").inc(len(self._exchange.prompt_ids))
        self._metrics.tokens.labels("completion").inc(len(self._exchange.generation.ids))


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_json(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _json(status: int, body: dict[str, object]) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
