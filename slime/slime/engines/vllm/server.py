"""HTTP routes of a hosted vLLM: the embedded engine's protocol. Runs in vLLM's Python."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slime.engines.json_http import DONE, JsonHttp, disconnected, pause_after_chunk
from slime.engines.requests import (
    AbortRequest,
    EmptyRequest,
    GenerateRequest,
    PauseRequest,
    PrepareRequest,
    RequestError,
    RunningRequestError,
    SwitchRequest,
)
from slime.engines.vllm.answers import HostedAnswer
from slime.engines.vllm.engine import HostedEngine
from slime.engines.vllm.sampling import new_tokens, sampling_options
from slime.engines.vllm.weights import BrokenEngineError, HostedWeights

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
WIRE = JsonHttp(json.loads, lambda body: json.dumps(body, separators=(",", ":")).encode())


class VLLMServer:
    """Routes over one engine and its weights.

    Args:
        about: model_path and version, for /model_info and /server_info.
        end: ends the process, when the engine cannot serve any more.
    """

    def __init__(
        self, engine: HostedEngine, weights: HostedWeights, about: dict[str, str], end: Callable[[], None]
    ) -> None:
        self.engine, self.weights = engine, weights
        self.about, self.end = about, end
        self.running: dict[str, HostedAnswer] = {}
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
        return Starlette(routes=WIRE.routes(post, get), lifespan=self._lifespan)

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
        body = await WIRE.parse(request, GenerateRequest)
        answer, reader = self._begin(body)
        begun = asyncio.create_task(answer.changed.wait())
        gone = asyncio.create_task(disconnected(request.receive))
        streamed = False
        try:
            await asyncio.wait({begun if body.stream else reader, gone}, return_when=asyncio.FIRST_COMPLETED)
            failure = answer.failure  # what is refused at once is no stream
            if failure is not None:
                return WIRE.answer({"error": {"message": failure["message"]}}, failure["status_code"])
            if body.stream and not gone.done():
                streamed = True
                return StreamingResponse(self._events(answer, reader), media_type="text/event-stream")
            return WIRE.answer(answer.snapshot())
        finally:
            begun.cancel()
            gone.cancel()
            if not streamed:
                reader.cancel()

    def _begin(self, body: GenerateRequest) -> tuple[HostedAnswer, asyncio.Task[None]]:
        tokenizer = self.engine.tokenizer
        prompt = tokenizer.encode(body.text) if body.input_ids is None else body.input_ids
        options = sampling_options(body, prompt, self.engine.limits)
        wanted = new_tokens(body, len(prompt), self.engine.limits)
        rid = body.rid or uuid.uuid4().hex
        if rid in self.running:
            raise RunningRequestError(f"rid: {rid!r} is already running")
        live: Callable[[], int] = lambda: self.weights.live.number  # noqa: E731 (typed)
        answer = HostedAnswer(rid, body, prompt, wanted, live, lambda token: str(tokenizer.decode([token])))
        self.running[rid] = answer
        return answer, asyncio.create_task(self._read(answer, prompt, options))

    async def _read(self, answer: HostedAnswer, prompt: list[int], options: dict[str, Any]) -> None:
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

    async def _events(self, answer: HostedAnswer, reader: asyncio.Task[None]) -> AsyncIterator[bytes]:
        try:
            while True:
                await answer.changed.wait()
                answer.changed.clear()
                last = answer.finish is not None
                yield WIRE.event(answer.snapshot())
                if last:
                    yield DONE
                    return
                await asyncio.sleep(pause_after_chunk(len(self.running), answer.count))
        finally:
            reader.cancel()

    async def abort(self, request: Request) -> Response:
        body = await WIRE.parse(request, AbortRequest)
        for rid in list(self.running) if body.abort_all else [str(body.rid)]:
            if rid in self.running:
                await self.engine.abort(rid)
        return WIRE.answer({"success": True, "message": "aborting"})

    async def pause(self, request: Request) -> Response:
        body = await WIRE.parse(request, PauseRequest)
        async with self.weights.lock:
            self.engine.paused = True
            await self.engine.pause(body.mode)
        return WIRE.answer({"success": True, "message": f"paused ({body.mode})"})

    async def resume(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        async with self.weights.lock:
            await self.engine.resume()
            self.engine.paused = False
        return WIRE.answer({"success": True, "message": "running"})

    async def prepare_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, PrepareRequest)
        checksum = await self.weights.prepare(body.model_path, body.version)
        return WIRE.answer({"success": True, "message": "prepared", "checksum": checksum})

    async def switch_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, SwitchRequest)
        try:
            checksum = await self.weights.switch(body.version)
        except BrokenEngineError:
            self.end()
            raise
        return WIRE.answer(
            {"success": True, "message": "live", "weight_version": body.weight_version, "checksum": checksum}
        )

    async def discard_weights(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        await self.weights.discard()
        return WIRE.answer({"success": True, "message": "nothing is prepared"})

    async def health(self, request: Request) -> Response:
        if self.engine.dead:
            return WIRE.answer({"status": "vLLM's engine process has ended"}, 503)
        return WIRE.answer({"status": "ok"})

    async def model_info(self, request: Request) -> Response:
        live, limits = self.weights.live, self.engine.limits
        return WIRE.answer(
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
        return WIRE.answer({**self.about, **load})
