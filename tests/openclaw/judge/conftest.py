"""A store with answered turns, as a gateway leaves them for the judge; a judge endpoint that does as told."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from openclaw.store import RolloutStore
from openclaw.types import NewTurn, Turn


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RolloutStore]:
    store = RolloutStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def answer(store: RolloutStore) -> Callable[[str], Turn]:
    numbers = itertools.count()

    def make(next_message: str) -> Turn:
        turn = store.turns.record(
            NewTurn(
                completion_id=f"chatcmpl-{next(numbers)}",
                session_id="s",
                messages=[{"role": "user", "content": "Solve my homework."}],
                response_message={"role": "assistant", "content": "**7**"},
                prompt_ids=[1, 2],
                completion_ids=[3, 4],
                completion_log_probs=[-0.5, -0.25],
                version_spans=[(0, 0, 2)],
                sampling={"temperature": 0.6},
                finish_reason="stop",
                transcript_digest="d",
            )
        )
        assert store.turns.answer(turn.id, [{"role": "user", "content": next_message}])
        return turn

    return make


class FakeJudge:
    """A judge endpoint whose answers are scripted. `script` gives one step a request; the last is repeated.

    A step: a text is the model's reply; a number is that HTTP status; a (status, headers, body) tuple is sent as it
    is; "!close" closes without an answer, "!half" breaks off within the JSON, "!hang" never answers, "!garbage" sends
    bytes that are no HTTP, a function of the request body gives one of these."""

    def __init__(self) -> None:
        self.script: list[Any] = [r"\boxed{1}"]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.open = self.most_open = 0
        self.delay = 0.0
        self.url = ""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(re.search(rb"content-length: (\d+)", head.lower()).group(1))  # type: ignore[union-attr]
                await self._answer(head.decode(), orjson.loads(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.headers.append(head)
        self.bodies.append(body)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(self.delay)
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            step = step(body) if callable(step) else step
            if step == "!hang":
                await asyncio.sleep(30)
            if step == "!close":
                raise ConnectionResetError
            writer.write(_wire(head, step))
            await writer.drain()
            if step in ("!half", "!garbage"):
                raise ConnectionResetError
        finally:
            self.open -= 1


def with_hint_markers(body: dict[str, Any], reply: str) -> str:
    """A reply with the hint markers that this request names."""
    mark = re.search(r"\[HINT_START(_\w+)\]", str(body["messages"]))
    name = mark[1] if mark else ""
    return reply.replace("[HINT_START]", f"[HINT_START{name}]").replace("[HINT_END]", f"[HINT_END{name}]")


def _wire(head: str, step: Any) -> bytes:
    if step == "!garbage":
        return b"\x00\x01 what is this\r\n\r\n"
    if step == "!half":
        return b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices": [{"mess'
    if isinstance(step, int):
        step = (step, "", b'{"error": {"message": "scripted"}}')
    if isinstance(step, str):
        chat = {"choices": [{"message": {"role": "assistant", "content": step}}]}
        native = {"text": step, "output_ids": [], "meta_info": {}}
        step = (200, "", orjson.dumps(native if " /generate " in head else chat))
    status, headers, body = step
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@pytest.fixture
async def judge_server() -> AsyncIterator[FakeJudge]:
    server = FakeJudge()
    await server.start()
    yield server
    await server.stop()
