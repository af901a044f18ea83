"""The engines of a run behind one call: uses the least loaded one, retries on others, supports aborts."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from claw_base.connections import watched_socket
from slime.errors import EngineError

logger = logging.getLogger(__name__)

RETRY_FIRST, RETRY_MOST = 0.1, 5.0  # seconds for which an engine is avoided after a failure; doubles up to
FIND_INTERVAL = 5.0  # seconds after which new engines, and engines on lost machines, are noticed
CONNECT_TIMEOUT = 10.0  # seconds
ABORT_TIMEOUT = 5.0  # seconds for an engine to confirm an abort; repeated while answers are outstanding
TRY_AGAIN = (408, 409, 425, 429)


class EngineRefused(EngineError):
    """The request itself is invalid (such as a prompt that is too long), so every engine would reject it."""


class EngineAway(EngineError):
    """No engine responded in time."""


@dataclass
class EngineSite:
    """State of one engine; times are `time.monotonic` seconds."""

    url: str
    in_flight: int = 0
    failures: int = 0
    away_until: float = 0.0
    last_error: str = "not tried"

    def failed(self, error: BaseException) -> None:
        self.failures += 1
        self.last_error = str(error) or type(error).__name__
        self.away_until = time.monotonic() + min(RETRY_FIRST * 2 ** (self.failures - 1), RETRY_MOST)


class Interrupt:
    """The requests of one rollout, which can be aborted together."""

    def __init__(self) -> None:
        self.set = False
        self.requests: dict[str, EngineSite] = {}


class EnginePool:
    """Client of all engines that serve the policy. Used only on the rollout event loop.

    Args:
        find_urls: returns the engines' addresses; called periodically, and while no engine responds.
    """

    def __init__(self, find_urls: Callable[[], Sequence[str]]) -> None:
        self._find_urls = find_urls
        self._sites: dict[str, EngineSite] = {}
        self._session: aiohttp.ClientSession | None = None
        self._ask_again = 0.0
        self._turn = itertools.count()
        self.retries = 0

    async def generate(
        self, body: dict[str, Any], timeout: float, interrupt: Interrupt | None = None
    ) -> dict[str, Any]:
        """Returns the response of SGLang's `/generate` to `body`.

        If an engine is unreachable or temporarily rejects requests, another one is tried, or the same one
        later.

        Args:
            timeout: seconds for all attempts together.
            interrupt: once it is set, requests end early with finish reason "abort".

        Raises:
            EngineRefused: the request can never be served.
            EngineAway: no response in time; the message has the error of the last attempt.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if interrupt is not None and interrupt.set:
                return aborted_answer()
            site = self._choose()
            if site is None:
                await asyncio.sleep(min(RETRY_FIRST, max(deadline - time.monotonic(), 0.0)))
                continue
            try:
                return await self._ask(site, body, deadline, interrupt)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self.retries += 1
                site.failed(error)
        met = "; ".join(f"{site.url}: {site.last_error}" for site in self._sites.values())
        raise EngineAway(f"no engine responded within {timeout:g} s ({met or 'no engine is known'})")

    async def abort(self, interrupt: Interrupt) -> None:
        """Aborts the requests of one rollout; their responses contain the tokens so far."""
        interrupt.set = True
        session = self._client()
        requests = [
            session.post(
                f"{site.url}/abort_request",
                json={"rid": rid},
                timeout=aiohttp.ClientTimeout(total=ABORT_TIMEOUT),
            )
            for rid, site in list(interrupt.requests.items())
        ]
        for result in await asyncio.gather(*(_closed(call) for call in requests), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(
                result, aiohttp.ClientError | TimeoutError
            ):
                raise result

    def take_retries(self) -> int:
        """Returns the number of retries since the last call."""
        count, self.retries = self.retries, 0
        return count

    async def versions(self) -> list[int]:
        """Returns the live weight version of each engine. Raises EngineAway if one does not report it."""
        try:
            return [await self._version(url) for url in self._find_urls()]
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
            raise EngineAway(f"an engine does not report its weight version: {error!r}") from error

    async def _version(self, url: str) -> int:
        timeout = aiohttp.ClientTimeout(total=ABORT_TIMEOUT)
        async with self._client().get(f"{url}/model_info", timeout=timeout) as answer:
            answer.raise_for_status()
            return version_number((await answer.json())["weight_version"])

    async def _ask(
        self, site: EngineSite, body: dict[str, Any], deadline: float, interrupt: Interrupt | None
    ) -> dict[str, Any]:
        rid = f"slime-{uuid.uuid4().hex}"
        left = max(deadline - time.monotonic(), RETRY_FIRST)
        timeout = aiohttp.ClientTimeout(total=left, sock_connect=CONNECT_TIMEOUT)
        site.in_flight += 1
        if interrupt is not None:
            interrupt.requests[rid] = site
        try:
            request = {**body, "rid": rid}
            async with self._client().post(f"{site.url}/generate", json=request, timeout=timeout) as answer:
                if answer.status == 200:
                    site.failures = 0
                    content: dict[str, Any] = await answer.json()
                    return content
                text = (await answer.text())[:500]
                if 400 <= answer.status < 500 and answer.status not in TRY_AGAIN:
                    raise EngineRefused(f"{site.url} rejected the request ({answer.status}): {text}")
                raise aiohttp.ClientError(f"HTTP {answer.status}: {text}")
        finally:
            site.in_flight -= 1
            if interrupt is not None:
                interrupt.requests.pop(rid, None)

    def _choose(self) -> EngineSite | None:
        """Returns the engine with the fewest requests, rotating between equals; None while all are avoided."""
        now = time.monotonic()
        if now >= self._ask_again or not any(site.away_until <= now for site in self._sites.values()):
            self._ask_again = now + FIND_INTERVAL
            self._sites = {url: self._sites.get(url, EngineSite(url)) for url in self._find_urls()}
        ready = [site for site in self._sites.values() if site.away_until <= now]
        if not ready:
            return None
        start = next(self._turn) % len(ready)
        return min(ready[start:] + ready[:start], key=lambda site: site.in_flight)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, socket_factory=watched_socket)
            )
        return self._session


async def _closed(call: Any) -> None:
    async with call:
        pass


def aborted_answer() -> dict[str, Any]:
    """Returns a response like that of an engine to a request aborted before its first token."""
    return {"text": "", "output_ids": [], "meta_info": {"finish_reason": {"type": "abort"}}}


def version_number(name: object) -> int:
    """Returns a weight version as a number; 0 for "default", as reported by an engine that was never updated."""
    text = str(name)
    return int(text) if text.isdigit() else 0
