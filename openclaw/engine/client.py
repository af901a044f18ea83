"""Client of inference engines, over SGLang's native HTTP API: connections, streams, health, adapters.

Streams are cumulative (each event repeats all earlier tokens) or incremental (SGLang's
`--incremental-streaming-output`). In a cumulative stream, the repeated part of an event is compared as bytes instead of
being parsed again, which is faster. An event that does not continue the previous one is parsed completely. In an
incremental stream, an event has fewer ids than its `completion_tokens`; the difference is the number of earlier ids.
There no event may be skipped.
"""

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

from claw_base.connections import watched_socket
from openclaw.engine.adapters import Adapter
from openclaw.engine.trial import TrialRequest
from openclaw.errors import ClientError, EngineError

READ_WHOLE_BYTES = 8 << 10
"""Events shorter than this are parsed completely."""
LAST = {"priority": -1}
"""SGLang's request field for low priority, for requests that no person waits for."""
SKIPPED = "skipped"
"""Key in a parsed event: the number of ids and log-probs omitted at the start of its lists."""
_KEYS = (b'"output_ids":', b'"output_token_logprobs":')
_ENDS = (b"]", b"]]")
_WHOLE_ONLY = b'"output_top_logprobs":'
LISTS = ("output_token_logprobs", "output_top_logprobs")
"""Fields of `meta_info` with one entry for each id."""


class CumulativeAnswers:
    """Parses the events of one cumulative stream, in order."""

    def __init__(self) -> None:
        self._lists: list[_List] = []

    def read(self, data: bytes) -> dict[str, Any]:
        """Returns a parsed event, whose lists lack the entries of earlier events (see SKIPPED).

        Raises JSONDecodeError, or AttributeError if the event is not a JSON object.
        """
        if len(data) < READ_WHOLE_BYTES or _WHOLE_ONLY in data:
            self._lists = []
            return {**orjson.loads(data), SKIPPED: 0}
        answer = self._continuation(data)
        if answer is None:
            answer = {**orjson.loads(data), SKIPPED: 0}
            self._lists = _lists(data, answer)
        return answer

    def _continuation(self, data: bytes) -> dict[str, Any] | None:
        """Returns the event without the entries of earlier events; None if it does not continue the previous one."""
        if not self._lists:
            return None
        parts, at, tails = [], 0, []
        skipped = self._lists[0].count
        for growing in self._lists:
            entries = growing.new_entries(data, at)
            if entries is None:
                return None
            start, end, tail = entries
            parts += [data[at:start], b"[]"]
            at = end
            tails.append(tail)
        try:
            answer = orjson.loads(b"".join([*parts, data[at:]]))
            lists = [orjson.loads(tail) for tail in tails]
        except orjson.JSONDecodeError:
            return None
        if len({len(one) for one in lists}) != 1 or not isinstance(answer.get("meta_info"), dict):
            return None
        answer["output_ids"] = lists[0]
        if len(lists) > 1:
            answer["meta_info"]["output_token_logprobs"] = lists[1]
        for growing in self._lists:
            growing.count += len(lists[0])
        return {**answer, SKIPPED: skipped}


class _List:
    """One of the growing lists of a cumulative stream.

    Args:
        key: JSON of its key with the colon.
        end: JSON at the end of the list.
        text: JSON of the list so far, without the closing bracket.
        count: number of entries so far.
    """

    def __init__(self, key: bytes, end: bytes, text: bytes, count: int) -> None:
        self._key = key
        self._end = end
        self._text = text
        self.count = count

    def new_entries(self, data: bytes, at: int) -> tuple[int, int, bytes] | None:
        """Returns start and end of this list in a later event, and a JSON list of its new entries.

        The list is searched from position `at`. Returns None if it does not begin with the same entries as before.
        """
        start = _list_start(data, self._key, at)
        after = start + len(self._text)
        if start < 0 or not data.startswith(self._text, start):
            return None
        next_byte = data[after : after + 1]
        if next_byte == b"]":
            return start, after + 1, b"[]"
        end = data.find(self._end, after)
        if next_byte != b"," or end < 0:
            return None
        last = end + len(self._end) - 1
        self._text = data[start:last]
        return start, last + 1, b"[" + data[after + 1 : last + 1]


def _list_start(data: bytes, key: bytes, at: int) -> int:
    """Returns the position of the list with this key, searching from `at`; -1 if there is none. The key does not occur
    inside a JSON string, where its quotes are escaped."""
    position = data.find(key, at)
    if position < 0:
        return -1
    start = position + len(key)
    while data[start : start + 1] == b" ":
        start += 1
    return start if data[start : start + 1] == b"[" else -1


def _lists(data: bytes, answer: dict[str, Any]) -> list[_List]:
    """Returns the growing lists of a completely parsed event; [] if their JSON cannot be located with certainty."""
    ids, meta = answer.get("output_ids"), answer.get("meta_info")
    if not isinstance(ids, list) or not isinstance(meta, dict):
        return []
    lists: list[_List] = []
    at = 0
    values = [ids, *([meta["output_token_logprobs"]] if meta.get("output_token_logprobs") else [])]
    for key, end, value in zip(_KEYS, _ENDS, values, strict=False):
        start = _list_start(data, key, at)
        at = data.find(end, start) + len(end)
        try:
            is_located = start >= 0 and orjson.loads(data[start:at]) == value
        except orjson.JSONDecodeError:
            is_located = False
        if not is_located or len(value) != len(ids):
            return []
        lists.append(_List(key, end, data[start : at - 1], len(value)))
    return lists


class StreamedAnswers:
    """Parses the events of one stream, cumulative or incremental, in order."""

    def __init__(self) -> None:
        self._cumulative = CumulativeAnswers()
        self._incremental = False

    def read(self, events: Sequence[bytes]) -> dict[str, Any]:
        """Returns one event for all events that arrived together, whose lists lack the entries of earlier events (see
        SKIPPED).

        Raises:
            JSONDecodeError, AttributeError, KeyError, TypeError: an event is malformed.
        """
        if not self._incremental:
            answer = self._cumulative.read(events[-1])
            if not _lacks_ids(answer):
                return answer
            self._incremental = True
        return _joined([orjson.loads(event) for event in events])


def _lacks_ids(answer: dict[str, Any]) -> bool:
    """Returns whether an event counts more ids than this stream has delivered so far: the stream is incremental."""
    ids, meta = answer.get("output_ids"), answer.get("meta_info")
    count = meta.get("completion_tokens") if isinstance(meta, dict) else None
    return isinstance(ids, list) and isinstance(count, int) and count > answer[SKIPPED] + len(ids)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns consecutive increments as one. All fields except the lists are those of the last increment."""
    last = parts[-1]
    if "error" in last:
        return {**last, SKIPPED: 0}
    ids = [token for part in parts for token in part["output_ids"]]
    meta = dict(last["meta_info"])
    for name in LISTS:
        if name in meta:
            meta[name] = [entry for part in parts for entry in part["meta_info"][name]]
    return {**last, "output_ids": ids, "meta_info": meta, SKIPPED: meta["completion_tokens"] - len(ids)}


log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 2.0
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=2.0)
TRIAL_TIMEOUT = aiohttp.ClientTimeout(total=300.0)
NO_TRIALS = (404, 405, 501)
"""HTTP status codes of an engine without the requested route."""
AVOID_SECONDS = 5.0
"""Time for which new requests avoid an engine that could not be reached."""
READY_POLL_SECONDS = 0.2
ADAPTER_NOT_LOADED = "adapter_not_loaded"
"""Error code of an engine that must load the request's adapter first."""
SGLANG_NOT_LOADED = ("LoRA adapters are not loaded", "LoRA adapter that has never been loaded")
"""Error messages of SGLang 0.5 for the same case, for which it has no code."""
SGLANG_LOADED = "already loaded"
"""Error message of SGLang 0.5 if the adapter is loaded already."""
REFUSED = (400, 413, 422)
"""HTTP status codes for invalid requests. All other failures are errors of the engine."""


class AdapterNotLoaded(EngineError):
    """The engine has not loaded the adapter of a request, for example after a restart. The client can load it."""


class EngineClient:
    """Client of all engines of one gateway.

    Args:
        urls: base URLs of the engines.

    Attributes:
        joining: URLs of engines that continue to sample for a while if a gateway dies, and return the tokens to a
            retry of the request.
        restarts: number of generations that were continued on another attempt.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()
        self._avoided: dict[str, float] = {}
        self.joining: set[str] = set()
        self._counting: dict[str, bool] = {}
        self._aborts: set[asyncio.Task[None]] = set()
        self.restarts = 0

    @property
    def _http(self) -> aiohttp.ClientSession:
        """Returns the connection pool of the running event loop. It has no total time-out, because long answers may
        take any time."""
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, socket_factory=watched_socket),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json"},
                auto_decompress=False,
            )
        return self._pools[loop]

    async def close(self) -> None:
        """Closes the connections of the running event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def preferred(self, affinity: str) -> list[str]:
        """Returns the URLs of all engines in the order of preference of a session; unreachable ones are last.

        Requests of one session thus use the same engine, whose cache has their prompts. With rendezvous hashing, adding
        an engine changes the preference of few sessions.
        """
        if len(self.urls) == 1:
            return self.urls
        now = time.monotonic()

        def rank(url: str) -> tuple[bool, bytes]:
            return self._avoided.get(url, 0.0) > now, hashlib.blake2b(f"{affinity} {url}".encode()).digest()

        return sorted(self.urls, key=rank)

    async def info(self, url: str) -> dict[str, Any] | None:
        """Returns `/model_info` of an engine; None if it does not answer. Remembers which features the engine has."""
        try:
            async with self._http.get(f"{url}/model_info", timeout=PROBE_TIMEOUT) as answer:
                info = orjson.loads(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError):
            return None
        if not isinstance(info, dict):
            return None
        if info.get("joins") is True:
            self.joining.add(url)
        self._counting[url] = info.get("adapters") is True
        return info

    async def ready(self) -> bool:
        """Returns whether at least one engine answers."""
        return any(info is not None for info in await asyncio.gather(*map(self.info, self.urls)))

    async def learn(self) -> None:
        """Requests the features of every engine. Returns when all engines have answered."""
        unknown = set(self.urls)
        while unknown:
            unknown = {url for url in unknown if await self.info(url) is None}
            if unknown:
                await asyncio.sleep(1.0)

    async def wait_ready(self) -> None:
        """Waits until at least one engine answers."""
        while True:
            if await self.ready():
                return
            await asyncio.sleep(READY_POLL_SECONDS)

    async def stream(self, url: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the parsed events of an answer, see `StreamedAnswers`, until it is complete.

        Raises:
            EngineError: the engine is unreachable or disconnects.
            ClientError: the engine rejects the request.
        """
        try:
            async with self._http.post(f"{url}/generate", data=orjson.dumps(body)) as answer:
                if answer.status != 200:
                    raise _error_of(answer.status, await answer.read())
                async for answer_part in _answers(answer.content):
                    yield answer_part
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if isinstance(error, aiohttp.ClientConnectorError | TimeoutError):
                self._avoided[url] = time.monotonic() + AVOID_SECONDS
            raise EngineError(f"{url}: {error or type(error).__name__}") from error

    async def counts_adapters(self, url: str) -> bool:
        """Returns whether an engine counts the versions of an adapter. Other engines, such as SGLang, cannot replace a
        loaded adapter, so each version is loaded with a name of its own."""
        if url not in self._counting:
            await self.info(url)
        return self._counting.get(url, True)

    async def load_adapter(self, url: str, adapter: Adapter) -> None:
        """Loads a version of an adapter, unless it is loaded already. Raises EngineError, or ClientError if the engine
        rejects the adapter."""
        body = adapter.body() if await self.counts_adapters(url) else adapter.versioned_body()
        status, data = await self._post(url, "load_lora_adapter", body)
        if status in NO_TRIALS:
            raise ClientError(
                f"the engine does not support adapters and cannot load {adapter.name!r}", "model"
            )
        if status != 200 and SGLANG_LOADED.encode() not in data:
            raise _error_of(status, data)

    async def load_adapters(self, adapters: Sequence[Adapter]) -> None:
        """Waits until all engines answer, and loads these adapters on each. Failures are logged."""
        await self.learn()
        for url in self.urls:
            for adapter in adapters:
                try:
                    await self.load_adapter(url, adapter)
                except (ClientError, EngineError) as error:
                    log.error("%s cannot load the adapter %r: %s", url, adapter.name, error)

    async def try_weights(self, url: str, request: TrialRequest) -> list[dict[str, Any]] | None:
        """Returns one greedy answer (`ids`, `log_probs`, `text`, `ended`) per prompt, by any version on disk.

        Returns None if the engine holds only one set of weights. Raises EngineError, or ClientError if the engine
        rejects the request.
        """
        status, data = await self._post(url, "try_weights", request.body())
        if status in NO_TRIALS:
            return None
        if status != 200:
            raise _error_of(status, data)
        answers: list[dict[str, Any]] | None = orjson.loads(data).get("answers")
        return answers

    async def _post(self, url: str, route: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Returns status and body of a response. Raises EngineError if the engine is unreachable."""
        try:
            async with self._http.post(
                f"{url}/{route}", data=orjson.dumps(body), timeout=TRIAL_TIMEOUT
            ) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EngineError(f"{url}: {error or type(error).__name__}") from error

    async def log_prob(
        self, url: str, prompt_ids: list[int], ids: list[int], adapter: Adapter | None = None
    ) -> float:
        """Returns the log-prob of ids [T] after a prompt, in nats, at temperature 1, under the model or an adapter.

        Raises EngineError, or ClientError if the engine rejects the request.
        """
        body: dict[str, Any] = {
            "input_ids": prompt_ids + ids,
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": len(prompt_ids) - 1,
            **LAST,
        }
        if adapter is not None and not adapter.is_base:
            counts = await self.counts_adapters(url)
            body["lora_path"] = adapter.name if counts else adapter.versioned_name
        status, data = await self._post(url, "generate", body)
        if status != 200 and isinstance(error := _error_of(status, data), AdapterNotLoaded) and adapter:
            log.debug("%s must load an adapter first: %s", url, error)
            await self.load_adapter(url, adapter)
            status, data = await self._post(url, "generate", body)
        if status != 200:
            raise _error_of(status, data)
        try:
            rows = orjson.loads(data)["meta_info"]["input_token_logprobs"][1:]
            if [row[1] for row in rows] != ids:
                raise ValueError("the response contains other ids than the request")
            return math.fsum(float(row[0]) for row in rows)
        except (orjson.JSONDecodeError, KeyError, TypeError, IndexError, ValueError) as error:
            raise EngineError(f"{url}: the response has no log-probs of the ids: {error!r}") from error

    def abort(self, url: str, request_id: str) -> None:
        """Sends a request to abort a generation, in the background."""
        task = asyncio.get_running_loop().create_task(self._abort(url, request_id))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _abort(self, url: str, request_id: str) -> None:
        try:
            async with self._http.post(
                f"{url}/abort_request", data=orjson.dumps({"rid": request_id}), timeout=PROBE_TIMEOUT
            ):
                pass
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.info("cannot abort %s on %s: %s", request_id, url, error)


async def _answers(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yields one event for all server-sent events that arrived together."""
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
            raise EngineError(f"the engine sent an event that is not JSON: {error}") from error
        except (KeyError, TypeError) as error:
            raise EngineError(
                f"the engine sent an event that is not in SGLang's format: {error!r}"
            ) from error
        if "error" in answer:
            raise _error_of(answer["error"].get("code", 500), data[-1])
        yield answer


def _error_of(status: int, body: bytes) -> ClientError | EngineError:
    """Returns the error for the response of an engine with an error status."""
    code = None
    try:
        answer = orjson.loads(body)
        code = answer["error"].get("code") if "error" in answer else None
        message = (
            answer["error"]["message"]
            if "error" in answer
            else answer.get("error_message") or answer["message"]
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        message = body[:500].decode("utf-8", "replace")
    if code == ADAPTER_NOT_LOADED or any(text in message for text in SGLANG_NOT_LOADED):
        return AdapterNotLoaded(message)
    if status in REFUSED:
        return ClientError(f"the engine rejected the request: {message}")
    return EngineError(f"status {status}: {message}")
