"""The gateway as an ASGI application: routes, middleware and error responses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from claw_base import peer
from openclaw.engine.client import EngineClient
from openclaw.errors import ClientError, StoreError
from openclaw.gateway.canaries import watch
from openclaw.gateway.forgetting import PeopleToForget
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.recorder import Recorder
from openclaw.http import docs
from openclaw.http.admin import (
    changes,
    feedback,
    health,
    judge_scale,
    memory,
    progress,
    records,
    trajectories,
    turns,
    versions,
)
from openclaw.http.admin_key import with_admin_key
from openclaw.http.cors import Cors
from openclaw.http.dialects import chat, completions, messages, responses
from openclaw.http.limits import Guesses
from openclaw.http.metrics import Metrics
from openclaw.http.middleware import AccessLog, FastRoute, RequestGuard
from openclaw.settings import Settings
from openclaw.store import RolloutStore
from openclaw.views.source import ViewSource

log = logging.getLogger(__name__)


def gateway_app(settings: Settings, engine_urls: Sequence[str], launched_url: str | None = None) -> FastAPI:
    """Returns the gateway as an ASGI application.

    Args:
        engine_urls: addresses of the engines, which need not be running yet.
        launched_url: address of the engine that the gateway itself launched.

    Raises:
        ConfigError, StoreError.
    """
    settings = with_admin_key(settings)
    recorder = None
    if settings.buffer is not None:
        recorder = Recorder(RolloutStore(settings.buffer, settings.durable), settings.session_ttl)
    engines = EngineClient(engine_urls)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks: list[asyncio.Task[None]] = []
        if adapters := list(app.state.gateway.adapters.values()):
            tasks.append(asyncio.create_task(engines.load_adapters(adapters)))
        if settings.memory and recorder is not None:
            tasks.append(asyncio.create_task(watch(app.state.gateway, recorder.store)))
        if recorder is not None and settings.run_dir is not None:
            people = PeopleToForget(recorder, Path(settings.run_dir), settings)
            tasks.append(asyncio.create_task(people.watch()))
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        app.state.views.close()
        if (spans := app.state.gateway.spans) is not None:
            await asyncio.to_thread(spans.close)
        await engines.close()
        if recorder is not None:
            await asyncio.to_thread(recorder.close)

    app = FastAPI(title="OpenClaw-RL gateway", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.gateway = Gateway(settings, engines, recorder)
    app.state.metrics = Metrics()
    app.state.guesses = Guesses()
    peer.can_identify_users()
    app.state.views = ViewSource.of(app.state.gateway, app.state.metrics.registry)
    app.state.started = time.time()
    app.state.launched_url = launched_url
    app.add_middleware(FastRoute, handlers={"/v1/chat/completions": chat.chat}, failure=_error_response)
    app.add_middleware(RequestGuard, settings=settings)
    if settings.cors_origin:
        app.add_middleware(Cors, origins=settings.cors_origin)
    app.add_middleware(AccessLog)
    app.include_router(chat.router)
    app.include_router(completions.router)
    app.include_router(messages.router)
    app.include_router(responses.router)
    app.include_router(feedback.router)
    app.include_router(memory.router)
    app.include_router(turns.router)
    app.include_router(trajectories.router)
    app.include_router(judge_scale.router)
    app.include_router(versions.router)
    app.include_router(health.router)
    app.include_router(docs.router)
    app.include_router(records.router)
    app.include_router(progress.router)
    app.include_router(changes.router)
    app.add_exception_handler(ClientError, _error_response)
    app.add_exception_handler(StoreError, _error_response)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    return app


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientError):
        answer = _json(error.status, error.body_for(request.url.path))
        if error.retry_after is not None:
            answer.headers["retry-after"] = str(round(error.retry_after))
        return answer
    log.error("%s %s: %s", request.method, request.url.path, error)
    message = "the rollout store is not available; the request is valid and can be sent again"
    failed = ClientError(message, code="store_error", status=500, kind="server_error")
    return _json(500, failed.body_for(request.url.path))


async def _internal_error(request: Request, error: Exception) -> Response:
    message = "internal server error; the gateway's log has the details"
    failed = ClientError(message, code="internal_error", status=500, kind="server_error")
    return _json(500, failed.body_for(request.url.path))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return _json(
        error.status_code, ClientError(message, code=str(error.detail).lower().replace(" ", "_")).body()
    )


def _json(status: int, body: object) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
