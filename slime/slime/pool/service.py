"""The pool of one host: environments of one class, leased over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path, PurePosixPath

from starlette.applications import Starlette

from slime.agents import wire
from slime.agents.protocol import Action, Environment
from slime.agents.wire import Json, Refusal, object_of, text_of
from slime.pool.http import routes
from slime.pool.leases import Leases, PoolLimits

PATH_FIELDS = ("task_path", "log_dir")
REAP_SECONDS = 1.0


class Pool:
    """Handles requests.

    Args:
        tasks: folder that must contain a request's `task_path`; None: any relative path without `..`.
    """

    def __init__(self, leases: Leases, tasks: Path | None = None) -> None:
        self.leases, self.tasks = leases, tasks

    async def healthz(self, _: Json) -> Json:
        return {"ok": True}

    async def status(self, _: Json) -> Json:
        return {"ok": True, "pool": self.leases.status()}

    async def allocate(self, body: Json) -> Json:
        request_id = body.get("request_id")
        lease, reused = await self.leases.allocate(text_of(body, "task_key"), request_id and str(request_id))
        return {"ok": True, "lease_id": lease.id, "reused": reused, "ttl": self.leases.limits.ttl}

    async def heartbeat(self, body: Json) -> Json:
        self.leases.find(text_of(body, "lease_id"))
        return {"ok": True}

    async def reset(self, body: Json) -> Json:
        meta = object_of(body, "task_meta")
        for fields in (meta, meta.get("metadata"), body.get("run_ctx")):
            if isinstance(fields, dict):
                check_paths(fields, self.tasks)
        task = wire.task_of(meta)

        async def work(environment: Environment) -> Json:
            return wire.start_body(await environment.reset(task))

        return await self._call(body, work)

    async def exec_tool(self, body: Json) -> Json:
        return await self._step(body, Action("", (wire.call_of(body.get("tool_call")),)))

    async def step(self, body: Json) -> Json:
        return await self._step(body, wire.action_of(object_of(body, "action")))

    async def _step(self, body: Json, action: Action) -> Json:
        async def work(environment: Environment) -> Json:
            return wire.observation_body(await environment.step(action))

        return await self._call(body, work)

    async def evaluate(self, body: Json) -> Json:
        async def work(environment: Environment) -> Json:
            return wire.outcome_body(await environment.evaluate())

        return await self._call(body, work)

    async def close(self, body: Json) -> Json:
        return {"ok": True, "found": self.leases.close(text_of(body, "lease_id"))}

    async def _call(self, body: Json, work: Callable[[Environment], Awaitable[Json]]) -> Json:
        request_id = body.get("request_id")
        content = json.dumps(body, sort_keys=True)
        return await self.leases.call(
            text_of(body, "lease_id"), request_id and str(request_id), content, work
        )


def check_paths(fields: Json, tasks: Path | None) -> None:
    """Raises Refusal for a path outside the folder of tasks, also through links."""
    for name in PATH_FIELDS:
        path = fields.get(name)
        if path is None:
            continue
        if (
            not isinstance(path, str)
            or "\0" in path
            or path.startswith("/")
            or ".." in PurePosixPath(path).parts
        ):
            raise Refusal(400, "BAD_PATH", f"{name} must be a path inside the folder of tasks")
        if tasks is not None and not (tasks / path).resolve().is_relative_to(tasks.resolve()):
            raise Refusal(400, "BAD_PATH", f"{name} is outside the folder of tasks")


def pool_app(
    make: Callable[[], Environment],
    limits: PoolLimits | None = None,
    key: str | None = None,
    tasks: Path | None = None,
    only_here: bool = False,
) -> Starlette:
    """Returns the pool as an ASGI app, which closes all environments when it ends. `only_here`: see `routes`."""
    leases = Leases(make, limits or PoolLimits())
    pool = Pool(leases, tasks)

    async def reaping() -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            leases.reap()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        reaper = asyncio.create_task(reaping())
        try:
            yield
        finally:
            reaper.cancel()
            await leases.close_all()

    changing = (
        pool.allocate,
        pool.heartbeat,
        pool.reset,
        pool.exec_tool,
        pool.step,
        pool.evaluate,
        pool.close,
    )
    posts = {f"/{handler.__name__}": handler for handler in changing}
    app = Starlette(
        routes=routes(posts, {"/healthz": pool.healthz, "/status": pool.status}, key, only_here),
        lifespan=lifespan,
    )
    app.state.leases = leases
    return app
