"""Requests to judge models: time-outs, retries within a budget, and a limit on concurrent requests."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from openclaw.errors import JudgeError
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import check_address

LARGEST_REPLY_BYTES = 8 << 20
QUOTED = 12
FREE_RETRIES = 10.0
"""Initial retry budget, and its maximum."""
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 8.0
_WORTH_A_RETRY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_CONNECT_SECONDS = 5.0


class JudgeUnavailable(JudgeError):
    """The judge is unreachable, overloaded, or rejects the key: the turn is retried later."""


class Refusal(JudgeError):
    """The judge rejects the request itself as invalid."""


class RetryBudget:
    """Limits retries to a share of all requests, so that a failing endpoint gets no extra load."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = FREE_RETRIES

    def pay(self) -> None:
        """Counts a first request."""
        self._saved = min(FREE_RETRIES, self._saved + self._share)

    def take(self) -> bool:
        """Returns whether one retry may be sent now."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


class JudgeHttp:
    """Posts JSON and returns JSON.

    Args:
        urls: addresses of equivalent endpoints; a retry goes to the next one.
        timeout: time-out of one request in seconds.
        retries: most retries of one request.
        budget: largest share of retries among all requests.
        max_requests: requests open at a time; the others wait.
        headers: sent with every request.

    Raises:
        ConfigError: an address is not an http URL.
    """

    def __init__(
        self, urls: Sequence[str], timeout: float, retries: int, budget: float, max_requests: int,
        metrics: JudgeMetrics, headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        for url in urls:
            check_address(url)
        self._urls = list(urls)
        self._timeout = timeout
        self._retries = retries
        self._budget = RetryBudget(budget)
        self._open = asyncio.Semaphore(max_requests)
        self._metrics = metrics
        self._secret = (headers or {}).get("Authorization", "").removeprefix("Bearer ")
        self._next = 0
        limits = httpx.Limits(max_connections=max_requests, max_keepalive_connections=max_requests)
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            limits=limits,
            headers=headers,
            trust_env=not all(map(_is_local, urls)),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the JSON object of the response. Raises JudgeUnavailable, Refusal (HTTP 400, 413, 422), or
        JudgeError for an invalid response."""
        self._budget.pay()
        self._next += 1
        first = self._next
        for attempt in range(self._retries + 1):
            try:
                async with self._open:
                    return await self._once(self._urls[(first + attempt) % len(self._urls)], body)
            except _Passing as error:
                if attempt == self._retries or not self._budget.take():
                    raise JudgeUnavailable(str(error)) from error
                self._metrics.retries += 1
                await asyncio.sleep(_wait(attempt, error.retry_after))
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        self._metrics.requests += 1
        try:
            async with asyncio.timeout(self._timeout):
                async with self._http.stream("POST", url, json=body) as answer:
                    data = await _read(answer)
        except TimeoutError as error:
            raise _Passing(f"{_host(url)} returned no complete answer in {self._timeout:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Passing(f"{_host(url)}: {type(error).__name__} {error}") from error
        if answer.status_code in _WORTH_A_RETRY:
            raise _Passing(self._failure(url, answer.status_code, data, body), _retry_after(answer))
        if answer.status_code in (400, 413, 422):
            raise Refusal(self._failure(url, answer.status_code, data, body))
        if answer.status_code != 200:
            raise JudgeUnavailable(self._failure(url, answer.status_code, data, body))
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise _Passing(f"{_host(url)} returned text that is not JSON ({len(data)} bytes)") from error
        if not isinstance(value, dict):
            raise JudgeError(f"{_host(url)} answered JSON that is not an object")
        return value

    def _failure(self, url: str, status: int, data: bytes, body: dict[str, Any]) -> str:
        """Returns the status and the server's message. It is logged and shown to all clients, so it is omitted if it
        quotes the conversation, and its key is replaced."""
        message: object = None
        try:
            error = orjson.loads(data)
            detail = error.get("error") or error.get("message")
            message = detail.get("message") if isinstance(detail, dict) else detail
        except (orjson.JSONDecodeError, AttributeError):
            pass
        if not isinstance(message, str) or quotes(message, body):
            return f"{_host(url)} answered status {status}"
        shown = message.replace(self._secret, "(the key)") if self._secret else message
        return f"{_host(url)} answered status {status}: {shown[:200]}"


def quotes(message: str, body: dict[str, Any]) -> bool:
    """Returns whether a server's message repeats `QUOTED` characters of a request's conversation, as servers do that
    show invalid input."""
    texts = list(_texts([body.get(name) for name in ("messages", "prompt", "text")]))
    parts = {message[at : at + QUOTED] for at in range(len(message) - QUOTED + 1)}
    return any(part in text for part in parts for text in texts)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


class _Passing(JudgeError):
    """A transient failure. `retry_after`: seconds, if the server sends it."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


async def _read(answer: httpx.Response) -> bytes:
    data = bytearray()
    async for chunk in answer.aiter_bytes():
        data += chunk
        if len(data) > LARGEST_REPLY_BYTES:
            raise JudgeError(f"{answer.url.host} answered more than {LARGEST_REPLY_BYTES} bytes")
    return bytes(data)


def _wait(attempt: int, retry_after: float | None) -> float:
    """Returns the pause in seconds: the server's request, else exponential back-off with half of it random."""
    seconds = FIRST_WAIT_SECONDS * 2.0**attempt if retry_after is None else retry_after
    wait = min(seconds, LONGEST_WAIT_SECONDS)
    return wait if retry_after is not None else wait * random.uniform(0.5, 1.0)


def _retry_after(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _is_local(url: str) -> bool:
    """Returns whether proxies of the environment must be bypassed."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
