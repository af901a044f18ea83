"""Routes for models, health, status, metrics, processes and the deletion of sessions."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from claw_base.run_folder.records import live_processes
from claw_base.run_folder.usage import rented_usage
from openclaw.errors import ClientError, StoreError
from openclaw.gateway.caller import person_of
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_admin, check_client
from openclaw.store.rights import ADMINISTRATOR

router = APIRouter()


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> Response:
    """Returns 200 while the process is alive."""
    return _json({"ok": True})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Returns 200 if an engine answers and turns can be stored, else 503.

    Requests that arrive while no engine is ready are accepted and wait.
    """
    gateway = _gateway(request)
    failure = gateway.recorder.failure if gateway.recorder is not None else None
    if failure is not None:
        return _json({"ready": False, "reason": f"turns cannot be stored: {failure}"}, 503)
    ready = await gateway.engines.ready()
    return _json({"ready": ready}, 200 if ready else 503)


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """Returns the models that the client may use: the served model and its adapters."""
    gateway = _gateway(request)
    check_client(request, gateway.settings)
    names, created = gateway.names.usable(person_of(request.headers)), request.app.state.started
    return _json({"object": "list", "data": [_model(gateway, name, created) for name in names]})


@router.get("/v1/models/{name}")
async def model(request: Request, name: str) -> Response:
    """Returns one model. Raises ClientError (404) if the client may not use it."""
    gateway = _gateway(request)
    check_client(request, gateway.settings)
    gateway.names.check(name, person_of(request.headers))
    return _json(_model(gateway, name, request.app.state.started))


@router.get("/status")
async def status(request: Request) -> Response:
    """Returns counts of turns and samples, the live weight version, and the state of the engines."""
    gateway = _gateway(request)
    check_client(request, gateway.settings)
    engines = [_engine(url, await gateway.engines.info(url)) for url in gateway.engines.urls]
    known = [engine["weight_version"] for engine in engines if engine["weight_version"] is not None]
    body: dict[str, Any] = {
        "model": gateway.model_name,
        "weight_version": min(known, default=0),
        "turns": {},
        "samples": {},
        "dropped": {},
        "judge_failures": {},
        "recording": gateway.recorder is not None,
        "engines": engines,
        "engine_restarts": gateway.engines.restarts,
        "uptime_s": time.time() - request.app.state.started,
    }
    if gateway.trained.adapters:
        body["adapters"] = _live_adapters(gateway, person_of(request.headers))
    run_dir = gateway.settings.run_dir
    if run_dir is not None and (rented := rented_usage(Path(run_dir))) is not None:
        body["rented"] = rented
    if gateway.recorder is not None:
        body |= await gateway.recorder.counts()
        body["weight_version"] = await gateway.recorder.live_version()
    return _json(body)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Returns the metrics in the Prometheus text format."""
    numbers = request.app.state.metrics
    gateway = _gateway(request)
    numbers.restarts.set(gateway.engines.restarts)
    if gateway.recorder is not None:
        try:
            numbers.collect(await gateway.recorder.counts(), await gateway.recorder.live_version())
            numbers.store_up.set(gateway.recorder.failure is None)
        except StoreError:
            numbers.store_up.set(0)
    return Response(generate_latest(numbers.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/admin/processes")
async def processes(request: Request) -> Response:
    """Returns the running processes of this run: `[{"role", "pid"}]`."""
    settings = _gateway(request).settings
    check_admin(request, settings)
    records = live_processes(Path(settings.run_dir)) if settings.run_dir else []
    roles = {int(record["pid"]): str(record["role"]) for record in records}
    roles[os.getpid()] = "gateway"
    launched = request.app.state.launched_url
    info = None if launched is None else await _gateway(request).engines.info(launched)
    if info is not None and isinstance(info.get("pid"), int):
        roles[info["pid"]] = "engine"
    return _json([{"role": role, "pid": pid} for pid, role in roles.items()])


_CONTENT = "/content"


@router.delete("/admin/sessions/{session_id:path}/content")
async def delete_session(request: Request, session_id: str) -> Response:
    """Deletes the turns of a session and the data derived from them, see `Recorder.delete_session`.

    Raises ClientError: 404 if there is no such session; 409 if `ID/content` is the id of another session and the query
    does not contain `session_id=ID`. A path that ends in `%2Fcontent` is the id of a session, which is ended.
    """
    gateway = _gateway(request)
    check_admin(request, gateway.settings)
    sent = request.scope.get("raw_path") or request.url.path.encode()
    if not sent.endswith(_CONTENT.encode()):
        return await end_session(request, session_id + _CONTENT)
    if request.query_params.get("session_id") != session_id:
        await _check_unambiguous(gateway, _id(session_id))
    recorder = gateway.recorder
    deleted, running = await recorder.delete_session(_id(session_id)) if recorder else ({}, 0)
    if not any(deleted.values()):
        raise ClientError(f"there is no recorded session {session_id!r}", "session_id", "not_found", 404)
    return _json({"session_id": session_id, "deleted": deleted, "running": running})


@router.delete("/admin/sessions/{session_id:path}")
async def end_session(request: Request, session_id: str) -> Response:
    """Ends a session: its last turn gets no next state."""
    gateway = _gateway(request)
    check_admin(request, gateway.settings)
    id_, recorder = _id(session_id), gateway.recorder
    expired = await recorder.end_session(id_, ADMINISTRATOR) if recorder else 0
    return _json({"session_id": session_id, "ended": True, "expired_turns": expired})


async def _check_unambiguous(gateway: Gateway, session_id: str) -> None:
    """Raises ClientError (409) if the URL could mean the deletion of one session or the end of another."""
    other = session_id + _CONTENT
    if (
        gateway.recorder is None
        or await asyncio.to_thread(gateway.recorder.store.sessions.get, other) is None
    ):
        return
    message = (
        f"the URL is ambiguous, because {other!r} is also a session: to delete {session_id!r}, add "
        f"?session_id={quote(session_id, safe='')}; to end {other!r}, write its id as {quote(other, safe='')}"
    )
    raise ClientError(message, "session_id", "ambiguous_session", 409)


def _id(session_id: str) -> str:
    """Returns the session id of the URL. Raises ClientError (404) if it contains unprintable characters."""
    if not session_id.isprintable():
        raise ClientError(f"there is no recorded session {session_id!r}", "session_id", "not_found", 404)
    return session_id


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _model(gateway: Gateway, name: str, created: float) -> dict[str, Any]:
    """Returns a model in the format of vLLM; an adapter has the served model as its `parent`."""
    model = {
        "id": name,
        "object": "model",
        "created": int(created),
        "owned_by": "openclaw-rl",
        "max_model_len": gateway.context_length,
    }
    return model if name == gateway.model_name else model | {"parent": gateway.model_name}


def _live_adapters(gateway: Gateway, key_name: str | None) -> dict[str, int]:
    """Returns the live version of each trained adapter that the client may use; 0 before its first update."""
    usable = gateway.names.usable(key_name)
    adapters = [one for one in gateway.trained.adapters.values() if gateway.names.of(one) in usable]
    return {one.name: gateway.trained.live(one).version or 0 for one in adapters}


def _engine(url: str, info: dict[str, Any] | None) -> dict[str, Any]:
    version = str((info or {}).get("weight_version", ""))
    return {
        "url": url,
        "ready": info is not None,
        "weight_version": int(version) if version.isdigit() else None,
        "checksum": (info or {}).get("checksum"),
    }


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
