"""Routes that read and change the number of judge workers of a running server.

The number is written to `scale.json` in the run folder. The process watcher reads it from there.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from claw_base.run_folder.records import live_processes
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import parse_body
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_admin

router = APIRouter()

MOST_WORKERS = 64
GROUP = "judge"


@router.get("/admin/judges")
async def judges(request: Request) -> Response:
    """Returns `{"workers": running, "wanted": requested number or null, "waiting": answered turns}`."""
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    return await _state(gateway, _run_dir(gateway))


@router.put("/admin/judges")
async def scale(request: Request) -> Response:
    """Sets the number of judge workers to `{"workers": N}` until the run restarts.

    A worker above the number gets some seconds to finish; another worker judges its unfinished turns.
    """
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    workers = parse_body(await request.body()).get("workers")
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
        raise ClientError(f"workers must be a whole number from 1 to {MOST_WORKERS}", "workers")
    run_dir = _run_dir(gateway)
    await asyncio.to_thread(write_requested, run_dir, workers)
    return await _state(gateway, run_dir)


def _run_dir(gateway: Gateway) -> Path:
    if gateway.settings.run_dir is None or not Path(gateway.settings.run_dir).is_dir():
        message = (
            "without a run folder (--run-dir) the server cannot change the number of judge workers; start workers "
            "manually: python -m openclaw.judge.worker"
        )
        raise ClientError(message, code="no_run", status=409)
    return Path(gateway.settings.run_dir)


def write_requested(run_dir: Path, workers: int) -> None:
    """Writes the number of judge workers to `scale.json` atomically; the numbers of other groups stay unchanged."""
    path = run_dir / "scale.json"
    temporary = path.with_name(f".scale.{os.getpid()}")
    temporary.write_bytes(orjson.dumps({**_requested_counts(path), GROUP: workers}))
    temporary.replace(path)


def _requested_counts(path: Path) -> dict[str, Any]:
    try:
        counts = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return counts if isinstance(counts, dict) else {}


async def _state(gateway: Gateway, run_dir: Path) -> Response:
    turns = {} if gateway.recorder is None else (await gateway.recorder.counts()).get("turns", {})
    body = {
        "workers": sum(record["role"] == GROUP for record in live_processes(run_dir)),
        "wanted": _requested_counts(run_dir / "scale.json").get(GROUP),
        "waiting": turns.get("answered", 0),
    }
    return Response(orjson.dumps(body), media_type="application/json")
