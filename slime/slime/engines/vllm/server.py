"""HTTP routes of a hosted vLLM: the embedded engine's protocol. Runs in vLLM's Python."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from slime.engines.embedded.protocol import (
    AbortRequest,
    EmptyRequest,
    GenerateRequest,
    PauseRequest,
    PrepareRequest,
    RequestError,
    RunningRequestError,
    SwitchRequest,
    explain,
)
from slime.engines.vllm.answers import Answer
from slime.engines.vllm.engine import Engine
from slime.engines.vllm.sampling import new_tokens, sampling_options
from slime.engines.vllm.weights import BrokenEngineError, WeightsError, WeightStore

logger = logging.getLogger(__name__)

SECONDS_PER_STREAM = 0.001
TOKENS_THAT_DOUBLE = 256
"""Pause after a chunk: this long for every open stream, and longer as the answer grows. Chunks are cumulative."""
WATCH_SECONDS = 1.0

Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


class VLLMServer:
    """Routes over one engine and its weights.

    Args:
        about: model_path and version, for /model_info and /server_info.
        end: ends the process, when the engine cannot serve any more.
    """

    def __init__(
        self, engine: Engine, weights: WeightStore, about: dict[str, str], end: Callable[[], None]
    ) -> None:
        self.engine, self.weights = engine, weights
        self.about, self.end = about, end
        self.running: dict[str, Answer] = {}
        self.started = time.time()

    def app(self) -> Starlette:
        post = {
            "/generate": self.generate,
            "/abort_request": self.abort,
            "/pause_generation": self.pause,
            "/continue_generation": self.resume,
            "/prepare_weights": self.prepare_weights,
            "/switch_weights": self.switch_weights,
            "/discard_weights": self.discard_weights,
        }
        get = {"/health": self.health, "/model_info": self.model_info, "/server_info": self.server_info}
        routes = [Route(path, _guarded(handler), methods=["POST"]) for path, handler in post.items()]
        routes += [Route(path, handler, methods=["GET"]) for path, handler in get.items()]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(self._watch())
        yield
        watcher.cancel()

    async def _watch(self) -> None:
        while not self.engine.dead:
            await asyncio.sleep(WATCH_SECONDS)
        logger.error("vLLM's engine process has ended")
        self.end()

    async def generate(self, request: Request) -> Response:
        body = await _parse(request, GenerateRequest)
        answer, reader = self._begin(body)
        begun = asyncio.create_task(answer.changed.wait())
        gone = asyncio.create_task(_gone(request))
        streamed = False
        try:
            await asyncio.wait({begun if body.stream else reader, gone}, return_when=asyncio.FIRST_COMPLETED)
            failure = answer.failure  # what is refused at once is no stream
            if failure is not None:
                return _json({"error": {"message": failure["message"]}}, failure["status_code"])
            if body.stream and not gone.done():
                streamed = True
                return StreamingResponse(self._events(answer, reader), media_type="text/event-stream")
            return _json(answer.snapshot())
        finally:
            begun.cancel()
            gone.cancel()
            if not streamed:
                reader.cancel()

    def _begin(self, body: GenerateRequest) -> tuple[Answer, asyncio.Task[None]]:
        tokenizer = self.engine.tokenizer
        prompt = tokenizer.encode(body.text) if body.input_ids is None else body.input_ids
        options = sampling_options(body, prompt, self.engine.limits)
        wanted = new_tokens(body, len(prompt), self.engine.limits)
        rid = body.rid or uuid.uuid4().hex
        if rid in self.running:
            raise RunningRequestError(f"rid: {rid!r} is already running")
        live: Callable[[], int] = lambda: self.weights.live.number  # noqa: E731 (typed)
        answer = Answer(rid, body, prompt, wanted, live, lambda token: str(tokenizer.decode([token])))
        self.running[rid] = answer
        return answer, asyncio.create_task(self._read(answer, prompt, options))

    async def _read(self, answer: Answer, prompt: list[int], options: dict[str, Any]) -> None:
        """Takes every token at once: which version it is of is known until the next switch."""
        try:
            async for delta in self.engine.generate(prompt, options, answer.rid):
                answer.add(delta)
        except RequestError as error:
            answer.fail(str(error), error.status)
        except Exception as error:  # one broken request; a broken engine is seen by the watcher
            logger.exception("request %s", answer.rid)
            answer.fail(f"vLLM failed: {error}", 500)
        finally:
            del self.running[answer.rid]

    async def _events(self, answer: Answer, reader: asyncio.Task[None]) -> AsyncIterator[bytes]:
        try:
            while True:
                await answer.changed.wait()
                answer.changed.clear()
                last = answer.finish is not None
                yield b"data: " + _dump(answer.snapshot()) + b"\n\n"
                if last:
                    yield b"data: [DONE]\n\n"
                    return
                pause = SECONDS_PER_STREAM * len(self.running) * (1 + answer.count / TOKENS_THAT_DOUBLE)
                await asyncio.sleep(pause)
        finally:
            reader.cancel()

    async def abort(self, request: Request) -> Response:
        body = await _parse(request, AbortRequest)
        for rid in list(self.running) if body.abort_all else [str(body.rid)]:
            if rid in self.running:
                await self.engine.abort(rid)
        return _json({"success": True, "message": "aborting"})

    async def pause(self, request: Request) -> Response:
        body = await _parse(request, PauseRequest)
        async with self.weights.lock:
            self.engine.paused = True
            await self.engine.pause(body.mode)
        return _json({"success": True, "message": f"paused ({body.mode})"})

    async def resume(self, request: Request) -> Response:
        await _parse(request, EmptyRequest)
        async with self.weights.lock:
            await self.engine.resume()
            self.engine.paused = False
        return _json({"success": True, "message": "running"})

    async def prepare_weights(self, request: Request) -> Response:
        body = await _parse(request, PrepareRequest)
        checksum = await self.weights.prepare(body.model_path, body.version)
        return _json({"success": True, "message": "prepared", "checksum": checksum})

    async def switch_weights(self, request: Request) -> Response:
        body = await _parse(request, SwitchRequest)
        try:
            checksum = await self.weights.switch(body.version)
        except BrokenEngineError:
            self.end()
            raise
        return _json(
            {"success": True, "message": "live", "weight_version": body.weight_version, "checksum": checksum}
        )

    async def discard_weights(self, request: Request) -> Response:
        await _parse(request, EmptyRequest)
        await self.weights.discard()
        return _json({"success": True, "message": "nothing is prepared"})

    async def health(self, request: Request) -> Response:
        if self.engine.dead:
            return _json({"status": "vLLM's engine process has ended"}, 503)
        return _json({"status": "ok"})

    async def model_info(self, request: Request) -> Response:
        live, limits = self.weights.live, self.engine.limits
        return _json(
            {
                "model_path": self.about["model_path"],
                "weights_path": live.path,
                "weight_version": str(live.number),
                "checksum": live.checksum,
                "max_context_length": limits.context_length,
                "vocab_size": limits.vocabulary,
                "dtype": self.engine.dtype,
                "is_generation": True,
                "backend": "vllm",
            }
        )

    async def server_info(self, request: Request) -> Response:
        load = {
            "running": len(self.running),
            "paused": self.engine.paused,
            "uptime_s": time.time() - self.started,
        }
        return _json({**self.about, **load})


async def _gone(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _parse(request: Request, kind: type[Body]) -> Body:
    raw = await request.body()
    try:
        return kind.model_validate(json.loads(raw) if raw else {})
    except json.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    except ValidationError as error:
        raise RequestError(explain(error)) from error


def _guarded(handler: Handler) -> Handler:
    """Bad requests are answers, not exceptions."""

    async def route(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            if request.url.path == "/generate":
                return _json({"error": {"message": str(error)}}, error.status)
            return _json({"success": False, "message": str(error)}, error.status)
        except (WeightsError, BrokenEngineError) as error:
            return _json({"success": False, "message": str(error)}, 400)

    return route


def _dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(_dump(body), status, media_type="application/json")
