"""One address for the pools of several hosts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Sequence

import httpx
from starlette.applications import Starlette

from slime.agents.wire import Json, Refusal, text_of
from slime.pool.http import Handler, routes
from slime.pool.keys import bearer, key_of

logger = logging.getLogger(__name__)
FORWARDED = ("heartbeat", "reset", "exec_tool", "step", "evaluate", "close")
STATUS_SECONDS = 10.0
ALLOCATE_SECONDS = 30.0


class Router:
    """Forwards requests to pools. A task goes to the pool selected by its key, or, if that one is full or
    unavailable, to the next in the ring.

    A lease is "<name of the pool>:<its lease>"; the name is a hash of the pool's address, so that leases stay valid when
    pools are added or removed.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key: str | None,
        seconds: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self.names = {_name(url): url for url in self.urls}
        self.key = key
        self.http = httpx.AsyncClient(timeout=seconds, transport=transport)

    def _headers(self, url: str) -> dict[str, str]:
        """Returns the headers for a pool: the common key, or the one that a local pool has created."""
        return bearer(key_of(url) if self.key is None else self.key)

    async def healthz(self, _: Json) -> Json:
        return {"ok": True}

    async def status(self, _: Json) -> Json:
        async def of(index: int, url: str) -> Json:
            try:
                response = await self.http.get(
                    f"{url}/status", headers=self._headers(url), timeout=STATUS_SECONDS
                )
                return {"worker_idx": index, "url": url, **response.json()}
            except (httpx.HTTPError, ValueError) as error:
                return {
                    "worker_idx": index,
                    "url": url,
                    "ok": False,
                    "error": f"{type(error).__name__} {error}",
                }

        workers = await asyncio.gather(*(of(index, url) for index, url in enumerate(self.urls)))
        return {"ok": True, "num_workers": len(self.urls), "workers": workers}

    async def allocate(self, body: Json) -> Json:
        refusals: list[Refusal] = []
        for url in self.ring(text_of(body, "task_key")):
            try:
                answer = await self._post(url, "allocate", body, ALLOCATE_SECONDS)
                return {**answer, "lease_id": f"{_name(url)}:{answer['lease_id']}"}
            except Refusal as refusal:
                if refusal.status not in (429, 502):
                    raise
                refusals.append(refusal)
        full = [refusal for refusal in refusals if refusal.status == 429]
        raise min(full, key=lambda refusal: refusal.retry_after or 0.0) if full else refusals[0]

    def ring(self, task_key: str) -> list[str]:
        """Returns all pools, beginning with the task's own: the first 8 bytes of the key's SHA-1, modulo their
        number."""
        first = int.from_bytes(hashlib.sha1(task_key.encode()).digest()[:8], "big") % len(self.urls)
        return self.urls[first:] + self.urls[:first]

    def forward(self, path: str) -> Handler:
        async def forwarded(body: Json) -> Json:
            name, colon, lease = text_of(body, "lease_id").partition(":")
            if not colon or not lease:
                raise Refusal(400, "BAD_REQUEST", "lease_id must be <pool>:<lease>")
            if name not in self.names:
                raise Refusal(404, "NO_LEASE", f"the router has no pool {name}")
            return await self._post(self.names[name], path, {**body, "lease_id": lease})

        forwarded.__name__ = path
        return forwarded

    async def _post(self, url: str, path: str, body: Json, seconds: float | None = None) -> Json:
        """Sends a request. Raises the pool's Refusal, or one with status 502 if the pool is unavailable or returns an
        invalid answer."""
        timeout = self.http.timeout if seconds is None else httpx.Timeout(seconds)
        try:
            response = await self.http.post(
                f"{url}/{path}", json=body, headers=self._headers(url), timeout=timeout
            )
            content = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise Refusal(502, "POOL_AWAY", f"{url}/{path}: {type(error).__name__} {error}") from error
        if response.status_code == 200 and isinstance(content, dict):
            return content
        about = content if isinstance(content, dict) else {}
        after = response.headers.get("Retry-After")
        raise Refusal(
            response.status_code if response.status_code != 200 else 502,
            str(about.get("code", "POOL_ERROR")),
            str(about.get("error", "the pool sent an invalid answer")),
            float(after) if after else None,
        )


def router_app(
    urls: Sequence[str],
    key: str | None = None,
    seconds: float = 600.0,
    transport: httpx.AsyncBaseTransport | None = None,
    own_key: str | None = None,
    only_here: bool = False,
) -> Starlette:
    """Returns the router as an ASGI app.

    Args:
        key: required from clients, and sent to the pools.
        own_key: required only from clients.
        only_here: see `routes`.
    """
    router = Router(urls, key, seconds, transport)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await router.http.aclose()

    posts = {"/allocate": router.allocate} | {f"/{path}": router.forward(path) for path in FORWARDED}
    gets = {"/healthz": router.healthz, "/status": router.status}
    return Starlette(routes=routes(posts, gets, key or own_key, only_here), lifespan=lifespan)


def _name(url: str) -> str:
    return hashlib.sha1(url.encode()).hexdigest()[:8]
