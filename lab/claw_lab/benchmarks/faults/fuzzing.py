"""Sends malformed and unusual requests in every dialect of the gateway; none may cause a 5xx or hang, and none may
leave resources behind.

`bash lab/run.sh benchmarks.faults.fuzzing FOLDER` sends requests for `--minutes`, most of them directly to the app
(ASGI, no socket), every twentieth as bytes over a real connection, appends the results to FOLDER/fuzz.jsonl and
prints one JSON line over all runs so far. The same command continues with other requests, up to `--requests`. The
engine is a fake that answers at once. Exit status 1: a 5xx, a hang, or a resource that was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvicorn

from claw_base.ports import listen
from claw_lab import MODEL
from claw_lab.benchmarks.faults import fault_table
from claw_lab.benchmarks.faults.odd_requests import OddRequests
from claw_lab.benchmarks.serving.fake_engine import fake_engine
from openclaw.http.auth import INSIDE
from openclaw.http.middleware import HttpProtocol
from openclaw.server import create_app
from openclaw.settings import Settings

HANGS_S = 30.0
ON_THE_WIRE = 20
"""One of this many requests is sent as bytes over a connection."""
AT_A_TIME = 8
SETTLED_S = 5.0
WARM = 2_000
"""Requests until the caches are full."""


class Fuzz:
    """Sends requests to a gateway in this process, and counts the results."""

    def __init__(self, app: Any, port: int, seed: int) -> None:
        self.app = app
        self.port = port
        self.odd = OddRequests(random.Random(seed))
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.sent = 0

    async def run(self, requests: int, minutes: float) -> dict[str, Any]:
        """Sends requests until either limit is reached; returns the results with the growth of resources."""

        async def inside(scope: Any, receive: Any, send: Any) -> None:
            await self.app({**scope, INSIDE: True}, receive, send)

        transport = httpx.ASGITransport(inside, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            end, before = time.monotonic() + 60 * minutes, None
            while self.sent < requests and time.monotonic() < end:
                await asyncio.gather(*(self._one(client) for _ in range(AT_A_TIME)))
                if before is None and self.sent >= min(WARM, requests // 2):
                    before = await self._open_things()
        after = await self._open_things()
        return {
            "requests": self.sent,
            "statuses": dict(self.statuses),
            "failures": self.failures[:20],
            "failed": len(self.failures),
            "before": before or after,
            "after": after,
        }

    async def _one(self, client: httpx.AsyncClient) -> None:
        self.sent += 1
        try:
            async with asyncio.timeout(HANGS_S):
                if self.sent % ON_THE_WIRE:
                    request = self.odd.request()
                    answer = await client.request(**request)
                    self._note(answer.status_code, answer.text, request)
                else:
                    data = self.odd.wire()
                    self._note(await self._wire(data), "", data)
        except TimeoutError:
            self.failures.append("hang")

    async def _wire(self, data: bytes) -> int:
        """Returns the status of the answer to these bytes; 0 if the connection was closed without an answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            writer.write_eof()
            words = (await reader.read()).split(b" ", 2)
            writer.close()
            return int(words[1]) if len(words) > 1 else 0
        return 0

    def _note(self, status: int, text: str, request: Any) -> None:
        self.statuses[status] += 1
        broken = status >= 500 or '"server_error"' in text or "Traceback" in text
        if broken:
            self.failures.append(f"{status} {text[:200]} <- {str(request)[:500]}")

    async def _open_things(self) -> dict[str, float]:
        """Returns the resources that must not grow with the requests: tasks, open files, generations, bytes of
        requests, memory in MiB."""
        gateway, deadline = self.app.state.gateway, time.monotonic() + SETTLED_S
        while gateway.running.running and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        gc.collect()
        own = psutil.Process()
        return {
            "running": gateway.running.running + gateway.running.waiting,
            "tasks": len(asyncio.all_tasks()),
            "files": own.num_fds(),
            "threads": own.num_threads(),
            "mib": round(own.memory_full_info().uss / 2**20, 1),
        }


async def piece(folder: Path, engine_url: str, requests: int, minutes: float, seed: int) -> dict[str, Any]:
    """Runs one part with a new gateway; the app also listens on a socket, for requests sent as bytes."""
    settings = Settings(
        model_path=str(MODEL), engine_url=(engine_url,), enable_rl_intercept=True,
        rl_buffer_dir=str(folder / "buffer"), log_level="error", request_timeout=20.0, client_timeout=10.0,
    )  # fmt: skip
    listener = listen("127.0.0.1", 0)
    app = create_app(settings, settings.engine_url)
    server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, log_level="critical", lifespan="on"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        return await Fuzz(app, listener.getsockname()[1], seed).run(requests, minutes)
    finally:
        server.should_exit = True
        await serving


def summary(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the totals over all parts; `growth`: the largest growth of each resource, from the warm-up to the end
    of a part."""
    statuses: Counter[str] = Counter()
    for one in pieces:
        statuses.update({str(status): count for status, count in one["statuses"].items()})
    names = pieces[0]["after"]
    return {
        "requests": sum(one["requests"] for one in pieces),
        "statuses": dict(sorted(statuses.items())),
        "failed": sum(one["failed"] for one in pieces),
        "first_failures": [failure for one in pieces for failure in one["failures"]][:3],
        "growth": {name: max(one["after"][name] - one["before"][name] for one in pieces) for name in names},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the results of all parts")
    parser.add_argument("--requests", type=int, default=100_000, help="total requests, over all parts")
    parser.add_argument("--minutes", type=float, default=3.0, help="minutes of this part")
    args = parser.parse_args()
    result = resume(args.folder, args.requests, args.minutes)
    print(json.dumps(result))
    sys.exit(1 if result["failed"] or fault_table.stays_behind(result["growth"]) else 0)


def resume(place: Path, requests: int, minutes: float) -> dict[str, Any]:
    """Runs one more part, if requests are left; returns the totals of all parts."""
    place.mkdir(parents=True, exist_ok=True)
    notes = place / "fuzz.jsonl"
    pieces = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    done = sum(one["requests"] for one in pieces)
    if done < requests:
        with tempfile.TemporaryDirectory() as folder, fake_engine(0.0, "top") as url:
            pieces.append(asyncio.run(piece(Path(folder), url, requests - done, minutes, done)))
        with notes.open("a") as file:
            print(json.dumps(pieces[-1]), file=file)
    result = summary(pieces)
    fault_table.note(place, "fuzzing", result)
    return result


if __name__ == "__main__":
    main()
