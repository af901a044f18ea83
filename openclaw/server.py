"""The gateway: `python -m openclaw.server --model-path FOLDER --enable-rl-intercept --rl-buffer-dir DIR`.

Serves the OpenAI API in front of an engine that it launches, or of running ones (`--engine-url`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import orjson
import uvicorn
import uvloop
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from openclaw.common.ports import listen
from openclaw.engine.client import EngineClient
from openclaw.engine.process import EngineProcess
from openclaw.errors import ClientError, OpenClawError, StoreError
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.recorder import Recorder
from openclaw.http.admin import feedback, health, judge_scale, turns, versions
from openclaw.http.dialects import chat, completions, messages, responses
from openclaw.http.metrics import Metrics
from openclaw.http.middleware.fast_route import FastRoute
from openclaw.http.middleware.guard import HttpProtocol, RequestGuard
from openclaw.settings import Settings, load_settings
from openclaw.store import RolloutStore
from openclaw.store.database import shown

log = logging.getLogger(__name__)

GRACE_SECONDS = 5
"""How long open answers may go on when the server is asked to stop."""
KEEP_ALIVE_SECONDS = 75


def create_app(
    settings: Settings, engine_urls: Sequence[str], launched: EngineProcess | None = None
) -> FastAPI:
    """The gateway as an ASGI app over engines that are there, or will be. Raises ConfigError, StoreError."""
    recorder = None
    if settings.buffer is not None:
        recorder = Recorder(RolloutStore(settings.buffer, settings.durable), settings.session_ttl)
    engines = EngineClient(engine_urls)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await engines.close()
        if recorder is not None:
            await asyncio.to_thread(recorder.close)

    app = FastAPI(title="OpenClaw-RL gateway", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.gateway = Gateway(settings, engines, recorder)
    app.state.metrics = Metrics()
    app.state.started = time.time()
    app.state.launched_engine = launched
    app.add_middleware(FastRoute, handlers={"/v1/chat/completions": chat.chat}, failure=_failure)
    app.add_middleware(RequestGuard, settings=settings)
    app.include_router(chat.router)
    app.include_router(completions.router)
    app.include_router(messages.router)
    app.include_router(responses.router)
    app.include_router(feedback.router)
    app.include_router(turns.router)
    app.include_router(judge_scale.router)
    app.include_router(versions.router)
    app.include_router(health.router)
    app.add_exception_handler(ClientError, _failure)
    app.add_exception_handler(StoreError, _failure)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unforeseen_error)
    return app


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve until a signal. Raises ConfigError when the launched engine never becomes ready."""
    launched = None
    if not settings.engine_url:
        launched = EngineProcess.of(
            settings.backend or "embedded", settings.model_folder, settings.context_length
        )
    app = create_app(settings, settings.engine_url if launched is None else [launched.url], launched)
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        lifespan="on",
    )
    server = _Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    beside = [asyncio.create_task(_announce(app, listener))]
    if launched is not None:
        beside.append(asyncio.create_task(launched.run()))
        await asyncio.wait([serving, beside[1]], return_when=asyncio.FIRST_COMPLETED)
        server.stop()
    await serving
    for task in beside:
        task.cancel()
    for result in await asyncio.gather(*beside, return_exceptions=True):
        if isinstance(result, OpenClawError):
            raise result


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status: 2 for a configuration that cannot work."""
    try:
        settings = load_settings(argv)
        logging.basicConfig(
            level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
        )
        with listen(settings.host, settings.port) as listener:
            os.putenv(
                "TOKENIZERS_PARALLELISM", "false"
            )  # one text at a time: a pool of threads only adds waiting
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(settings, listener))
    except OpenClawError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


class _Server(uvicorn.Server):
    """Leaves signals to `serve`, which has an engine to stop too."""

    def stop(self) -> None:
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _announce(app: FastAPI, listener: socket.socket) -> None:
    """One line on stdout when the first answer can be given."""
    gateway: Gateway = app.state.gateway
    await gateway.engines.wait_ready()
    host, port = listener.getsockname()[:2]
    buffer = gateway.settings.buffer
    recording = "recording nothing" if buffer is None else f"recording to {shown(buffer)}"
    address = f"[{host}]" if ":" in host else host
    print(f"ready: http://{address}:{port}/v1 serves {gateway.model_name}, {recording}", flush=True)


async def _failure(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientError):
        return _json(error.status, error.body())
    log.error("%s %s: %s", request.method, request.url.path, error)
    message = "the rollout store cannot be used; nothing is wrong with the request"
    return _json(500, ClientError(message, code="store_error", kind="server_error").body())


async def _unforeseen_error(request: Request, error: Exception) -> Response:
    message = "something went wrong inside the server; its log has the details"
    return _json(500, ClientError(message, code="internal_error", kind="server_error").body())


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return _json(
        error.status_code, ClientError(message, code=str(error.detail).lower().replace(" ", "_")).body()
    )


def _json(status: int, body: object) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


if __name__ == "__main__":
    sys.exit(main())
