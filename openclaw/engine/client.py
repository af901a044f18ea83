"""Client of inference engines over SGLang's native HTTP API: connections, streams, health."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
import orjson

from openclaw.engine.cumulative_stream import StreamedAnswers
from openclaw.engine.trial import TrialRequest
from openclaw.errors import ClientError, EngineError

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 2.0
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=2.0)
TRIAL_TIMEOUT = aiohttp.ClientTimeout(total=300.0)
NO_TRIALS = (404, 405, 501)
"""HTTP status of an engine that cannot answer with other weights than the live ones."""
AVOID_SECONDS = 5.0
"""How long new requests go first to other engines than one that could not be reached."""
READY_POLL_SECONDS = 0.2
REFUSED = (400, 413, 422)
"""HTTP status with which an engine says that the request is wrong; any other failure is the engine's."""


class EngineClient:
    """The engines behind one gateway.

    Args:
        urls: base addresses. A session prefers one of them, always the same while that can be reached.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()
        self._avoided: dict[str, float] = {}
        self.joining: set[str] = set()
        """Engines that sample on for a while when a gateway dies, and give what they have to a repeated request."""
        self._farewells: set[asyncio.Task[None]] = set()
        self.restarts = 0
        """How often a generation had to start again on an engine."""

    @property
    def _http(self) -> aiohttp.ClientSession:
        """The running loop's pool of connections. An answer may take as long as its request."""
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json"},
                auto_decompress=False,
            )
        return self._pools[loop]

    async def close(self) -> None:
        """Close the running loop's connections."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def preferred(self, affinity: str) -> list[str]:
        """All engines, best first for a session (rendezvous hashing: one engine more moves few sessions)."""
        if len(self.urls) == 1:
            return self.urls
        now = time.monotonic()

        def rank(url: str) -> tuple[bool, bytes]:
            return self._avoided.get(url, 0.0) > now, hashlib.blake2b(f"{affinity} {url}".encode()).digest()

        return sorted(self.urls, key=rank)

    async def info(self, url: str) -> dict[str, Any] | None:
        """`/model_info` of an engine; None while it does not answer."""
        try:
            async with self._http.get(f"{url}/model_info", timeout=PROBE_TIMEOUT) as answer:
                found = orjson.loads(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError):
            return None
        if not isinstance(found, dict):
            return None
        if found.get("joins") is True:
            self.joining.add(url)
        return found

    async def ready(self) -> bool:
        """Whether at least one engine answers."""
        return any(found is not None for found in await asyncio.gather(*map(self.info, self.urls)))

    async def learn(self) -> None:
        """Returns once every engine has told what it can."""
        unknown = set(self.urls)
        while unknown:
            unknown = {url for url in unknown if await self.info(url) is None}
            if unknown:
                await asyncio.sleep(1.0)

    async def wait_ready(self) -> None:
        """Returns once an engine answers."""
        while True:
            if await self.ready():
                return
            await asyncio.sleep(READY_POLL_SECONDS)

    async def stream(self, url: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The newest answer (see cumulative_stream.py), again and again, until the last. Raises
        EngineError when the engine is not there or breaks off, ClientError when it refuses the request."""
        try:
            async with self._http.post(f"{url}/generate", data=orjson.dumps(body)) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, await answer.read())
                async for found in _answers(answer.content):
                    yield found
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if isinstance(error, aiohttp.ClientConnectorError | TimeoutError):
                self._avoided[url] = time.monotonic() + AVOID_SECONDS
            raise EngineError(f"{url}: {error or type(error).__name__}") from error

    async def try_weights(self, url: str, asked: TrialRequest) -> list[dict[str, Any]] | None:
        """Greedy answers (`ids`, `log_probs`, `text`, `ended`) of weights that need not be live, one a prompt; None where
        the engine holds one set of weights. Raises EngineError, and ClientError when it refuses."""
        try:
            async with self._http.post(
                f"{url}/try_weights", data=orjson.dumps(asked.body()), timeout=TRIAL_TIMEOUT
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineError(f"{url}: {error or type(error).__name__}") from error
        if answer.status in NO_TRIALS:
            return None
        if answer.status != 200:
            raise _refusal(answer.status, data)
        found: list[dict[str, Any]] | None = orjson.loads(data).get("answers")
        return found

    async def log_prob(self, url: str, prompt_ids: list[int], ids: list[int]) -> float:
        """The log-prob of an answer's ids [T] behind a prompt, in nats, at temperature 1. Raises EngineError, and
        ClientError when the engine refuses."""
        body = {
            "input_ids": prompt_ids + ids,
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": len(prompt_ids) - 1,
        }
        try:
            async with self._http.post(
                f"{url}/generate", data=orjson.dumps(body), timeout=TRIAL_TIMEOUT
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineError(f"{url}: {error or type(error).__name__}") from error
        if answer.status != 200:
            raise _refusal(answer.status, data)
        try:
            rows = orjson.loads(data)["meta_info"]["input_token_logprobs"][1:]
            if [row[1] for row in rows] != ids:
                raise ValueError("other ids than those asked for")
            return math.fsum(float(row[0]) for row in rows)
        except (orjson.JSONDecodeError, KeyError, TypeError, IndexError, ValueError) as error:
            raise EngineError(f"{url} gave no log-probs of the ids: {error!r}") from error

    def abort(self, url: str, request_id: str) -> None:
        """Tell an engine to stop working for a request that nobody waits for. Does not wait."""
        task = asyncio.get_running_loop().create_task(self._abort(url, request_id))
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def _abort(self, url: str, request_id: str) -> None:
        try:
            async with self._http.post(
                f"{url}/abort_request", data=orjson.dumps({"rid": request_id}), timeout=PROBE_TIMEOUT
            ):
                pass
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.info("abort of %s did not reach %s: %s", request_id, url, error)


async def _answers(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events to answers, one of those that came together."""
    buffer, answers = b"", StreamedAnswers()
    while chunk := await content.readany():
        buffer += chunk
        end = buffer.rfind(b"\n\n")
        if end < 0:
            continue
        events, buffer = buffer[:end], buffer[end + 2 :]
        data = [event[6:] for event in events.split(b"\n\n") if event.startswith(b"data: {")]
        if not data:
            continue
        try:
            answer = answers.read(data)
        except orjson.JSONDecodeError as error:
            raise EngineError(f"a chunk that is not JSON: {error}") from error
        except (KeyError, TypeError) as error:
            raise EngineError(f"a chunk that is no SGLang answer: {error!r}") from error
        if "error" in answer:
            raise _refusal(answer["error"].get("code", 500), data[-1])
        yield answer


def _refusal(status: int, body: bytes) -> ClientError | EngineError:
    try:
        told = orjson.loads(body)
        message = told["error"]["message"] if "error" in told else told["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = body[:500].decode("utf-8", "replace")
    if status in REFUSED:
        return ClientError(f"the engine refused the request: {message}")
    return EngineError(f"status {status}: {message}")
