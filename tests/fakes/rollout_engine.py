"""A fake SGLang server: the time of an answer depends on its length, and it fails, aborts and changes weights on
request."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from aiohttp import web

Request = dict[str, Any]


class FakeEngine:
    """Its attributes may be set at any time.

    Attributes:
        version: weight version of all tokens sampled from now on. length: tokens of an answer, before its limit.
        seconds_per_token: 0 answers at once.
        failure: HTTP status for a request instead of an answer, None for none.
        requests, aborted: the requests, in order; request ids.
    """

    def __init__(self) -> None:
        self.version = 0
        self.length: Callable[[Request], int] = lambda request: 4
        self.seconds_per_token = 0.0
        self.failure: Callable[[Request], int | None] = lambda request: None
        self.requests: list[Request] = []
        self.aborted: set[str] = set()
        self.running = self.most_running = 0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_get("/model_info", self._model_info)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": str(self.version)})

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.add((await request.json())["rid"])
        return web.json_response({"success": True})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        status = self.failure(body)
        if status is not None:
            return web.json_response({"error": {"message": f"told to fail with {status}"}}, status=status)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return web.json_response(await self._answer(body))
        finally:
            self.running -= 1

    async def _answer(self, body: Request) -> dict[str, Any]:
        limit = body["sampling_params"]["max_new_tokens"]
        length = min(self.length(body), limit)
        reason = "length" if length == limit else "stop"
        chance = random.Random(body["sampling_params"]["sampling_seed"])
        ids: list[int] = []
        spans: list[dict[str, Any]] = []
        while len(ids) < length:
            if self.seconds_per_token:
                await asyncio.sleep(self.seconds_per_token)
            if body["rid"] in self.aborted:
                reason = "abort"
                break
            if not spans or spans[-1]["version"] != str(self.version):
                spans.append({"version": str(self.version), "start": len(ids), "end": len(ids)})
            ids.append(chance.randrange(100, 300))
            spans[-1]["end"] = len(ids)
        return {
            "text": "x" * len(ids),
            "output_ids": ids,
            "meta_info": {
                "finish_reason": {"type": reason},
                "completion_tokens": len(ids),
                "output_token_logprobs": [[-1.0 - token / 1000, token, None] for token in ids],
                "weight_versions": spans,
            },
        }
