"""HTTP routes of the embedded engine: SGLang's native API plus two-phase weight updates."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.streams import Streams
from slime.engines.embedded.trial import WeightTrial
from slime.engines.json_http import DONE, SERVER_OPTIONS, JsonHttp
from slime.engines.requests import (
    AbortRequest,
    EmptyRequest,
    GenerateRequest,
    LoadAdapterRequest,
    MemoryRequest,
    PauseRequest,
    PrepareRequest,
    SwitchRequest,
    TryRequest,
    UnloadAdapterRequest,
)
from slime.vision.reading import image_of_url

STUCK_AFTER = 120.0
"""Seconds without a finished step, despite open requests, after which /health returns 503."""

SLOW_AT_A_TIME = 4
"""Requests with a schema or images that are read at the same time, so that they leave threads for weight updates."""

WIRE = JsonHttp(orjson.loads, orjson.dumps)


class EngineServer:
    """HTTP routes over one EngineService."""

    def __init__(self, service: EngineService) -> None:
        self.service = service
        self.engine = service.engine
        self.streams = Streams(service.engine, service.tokenizer)
        self.trial = WeightTrial(service)
        self._slow = asyncio.Semaphore(SLOW_AT_A_TIME)
        self.started = time.time()

    def app(self) -> Starlette:
        post = {
            "/generate": self.generate,
            "/abort_request": self.abort,
            "/pause_generation": self.pause,
            "/continue_generation": self.resume,
            "/release_memory_occupation": self.release_memory,
            "/resume_memory_occupation": self.resume_memory,
            "/flush_cache": self.flush_cache,
            "/prepare_weights": self.prepare_weights,
            "/switch_weights": self.switch_weights,
            "/discard_weights": self.discard_weights,
            "/try_weights": self.try_weights,
            "/load_lora_adapter": self.load_adapter,
            "/unload_lora_adapter": self.unload_adapter,
            "/update_weights_from_disk": self.update_weights,
        }
        get = {
            "/health": self.health,
            "/model_info": self.model_info,
            "/server_info": self.server_info,
            "/lora_adapters": self.adapters,
        }
        return Starlette(routes=WIRE.routes(post, get), lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.streams.attach()
        self.engine.start()
        yield
        await run_in_threadpool(self.engine.stop)

    async def generate(self, request: Request) -> Response:
        body = await WIRE.parse(request, GenerateRequest)
        requested = await self._sequence(body)
        sequence = self.streams.rejoin(body.join_key, requested) if body.join and body.join_key else requested
        answers = self.streams.run(
            sequence, request.receive, body.stream, body.return_text_in_logprobs, body.join_key
        )
        if body.stream:
            first = await anext(answers, None)
            return StreamingResponse(_events(first, answers), media_type="text/event-stream")
        async with aclosing(answers):
            answer: dict[str, Any] = await anext(answers, {})  # empty if the client has disconnected
        reason = answer.get("meta_info", {}).get("finish_reason") or {}
        if "status_code" in reason:
            return WIRE.answer({"error": {"message": reason["message"]}}, reason["status_code"])
        return WIRE.answer(answer)

    async def _sequence(self, body: GenerateRequest) -> Sequence:
        if body.sampling_params.json_schema is None and not body.image_data:
            return self.service.sequence(body)
        async with self._slow:
            return await run_in_threadpool(self.service.sequence, body)

    async def abort(self, request: Request) -> Response:
        body = await WIRE.parse(request, AbortRequest)
        self.engine.abort(None if body.abort_all else self.streams.running_as(body.rid))
        return WIRE.answer({"success": True, "message": "aborting"})

    async def pause(self, request: Request) -> Response:
        body = await WIRE.parse(request, PauseRequest)
        await run_in_threadpool(self.engine.pause, body.mode)
        return WIRE.answer({"success": True, "message": f"paused ({body.mode})"})

    async def resume(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        await run_in_threadpool(self.engine.resume)
        return WIRE.answer({"success": True, "message": "running"})

    async def release_memory(self, request: Request) -> Response:
        await WIRE.parse(request, MemoryRequest)
        await run_in_threadpool(self.engine.release_memory)
        return WIRE.answer({"success": True, "message": "released"})

    async def resume_memory(self, request: Request) -> Response:
        await WIRE.parse(request, MemoryRequest)
        await run_in_threadpool(self.engine.resume_memory)
        return WIRE.answer({"success": True, "message": "resumed"})

    async def flush_cache(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        await run_in_threadpool(self.engine.flush_cache)
        image_of_url.cache_clear()
        return WIRE.answer({"success": True, "message": "flushed"})

    async def prepare_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, PrepareRequest)
        prepared = await run_in_threadpool(self.service.weights.prepare, body.model_path, body.version)
        return WIRE.answer({"success": True, "message": "prepared", "checksum": prepared.checksum})

    async def switch_weights(self, request: Request) -> Response:
        return await self._switch((await WIRE.parse(request, SwitchRequest)).version)

    async def discard_weights(self, request: Request) -> Response:
        await WIRE.parse(request, EmptyRequest)
        await run_in_threadpool(self.service.weights.discard)
        self.trial.end()
        return WIRE.answer({"success": True, "message": "no weights are prepared"})

    async def try_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, TryRequest)
        answers = await run_in_threadpool(self.trial.answers, body)
        return WIRE.answer({"success": True, "message": "tried", "answers": answers})

    async def update_weights(self, request: Request) -> Response:
        body = await WIRE.parse(request, PrepareRequest)
        await run_in_threadpool(self.service.weights.prepare, body.model_path, body.version)
        return await self._switch(body.version)

    async def _switch(self, version: int) -> Response:
        live = await run_in_threadpool(self.service.weights.switch, version)
        return WIRE.answer(
            {
                "success": True,
                "message": "live",
                "weight_version": str(live.version),
                "checksum": live.checksum,
                "num_paused_requests": 0,
            }
        )

    async def load_adapter(self, request: Request) -> Response:
        body = await WIRE.parse(request, LoadAdapterRequest)
        loaded = await run_in_threadpool(
            self.service.adapters.register, body.lora_name, body.lora_path, body.version
        )
        return WIRE.answer(
            {
                "success": True,
                "message": "loaded",
                "weight_version": str(loaded.version),
                "checksum": loaded.checksum,
            }
        )

    async def unload_adapter(self, request: Request) -> Response:
        body = await WIRE.parse(request, UnloadAdapterRequest)
        await run_in_threadpool(self.service.adapters.unregister, body.lora_name)
        return WIRE.answer({"success": True, "message": "unloaded"})

    async def adapters(self, request: Request) -> Response:
        return WIRE.answer({"adapters": self.service.adapters.listing()})

    async def health(self, request: Request) -> Response:
        engine = self.engine
        idle = engine.paused or not engine.scheduler.has_work
        if not engine.alive:
            return WIRE.answer({"status": "the decode thread has exited"}, 503)
        if not idle and time.monotonic() - engine.last_step > STUCK_AFTER:
            return WIRE.answer({"status": f"no step has finished for {STUCK_AFTER:.0f} s"}, 503)
        return WIRE.answer({"status": "ok"})

    async def model_info(self, request: Request) -> Response:
        return WIRE.answer(self.service.model_info())

    async def server_info(self, request: Request) -> Response:
        scheduler = self.engine.scheduler
        load = {
            "paused": self.engine.paused,
            "waiting": len(scheduler.waiting),
            "prefilling": len(scheduler.prefilling),
            "decoding": scheduler.store.rows,
            "open_streams": self.streams.open,
            "max_total_tokens": scheduler.limits.total,
            "adapter_bytes": self.service.adapters.nbytes,
            "adapter_loads": self.service.adapters.loads,
            "uptime_s": time.time() - self.started,
        }
        return WIRE.answer({**asdict(self.service.args), **load, **asdict(self.engine.counters)})


def serve(args: EmbeddedArguments, listener: socket.socket) -> None:
    """Loads the model and serves on `listener` until a signal; prints one JSON line on stdout when ready."""
    announced_server(EngineService(args), listener).run(sockets=[listener])


def announced_server(
    service: EngineService, listener: socket.socket, on_serving: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    """Returns a server that prints one JSON line on stdout and calls `on_serving` when it is ready."""
    config = uvicorn.Config(
        EngineServer(service).app(),
        log_level=service.args.log_level,
        **SERVER_OPTIONS,
    )
    host, port = listener.getsockname()[:2]
    ready = {
        "url": f"http://{host}:{port}",
        "model": service.args.model_path,
        "version": service.weights.live.version,
        "pid": os.getpid(),
    }
    return _AnnouncedServer(config, json.dumps(ready), on_serving)


class _AnnouncedServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, line: str, on_serving: Callable[[], None]) -> None:
        super().__init__(config)
        self._line = line
        self._on_serving = on_serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_serving()
        print(self._line, flush=True)


async def _events(
    first: dict[str, Any] | None, rest: AsyncGenerator[dict[str, Any], None]
) -> AsyncIterator[bytes]:
    if first is not None:
        yield WIRE.event(first)
        async with aclosing(rest):
            async for answer in rest:
                yield WIRE.event(answer)
        yield DONE
