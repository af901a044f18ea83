"""Client of a browser's DevTools protocol over a local socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from slime.errors import EnvironmentAway

BASE = "http://127.0.0.1:9222"
ANSWER_SECONDS = 20.0
START_SECONDS = 90.0
LOOK_AGAIN = 0.1
MOST_BYTES = 64 << 20
TOOLS = "devtools://"


@dataclass(frozen=True)
class Target:
    """A browser tab."""

    id: str
    title: str
    url: str
    socket: str


class NoAnswer(Exception):
    """A page does not answer, for example because it shows a dialog."""


class DevTools:
    """Client of one browser's DevTools socket.

    Attributes:
        targets: tabs at the last listing, in the order in which they were opened.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.targets: list[Target] = []
        self._session: aiohttp.ClientSession | None = None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.socket)))
        return self._session

    async def ready(self) -> None:
        """Returns once the browser has a tab. Raises EnvironmentAway."""
        ends = asyncio.get_running_loop().time() + START_SECONDS
        while asyncio.get_running_loop().time() < ends:
            try:
                if await self.tabs():
                    return
            except EnvironmentAway:
                pass
            await asyncio.sleep(LOOK_AGAIN)
        raise EnvironmentAway("the browser does not start")

    async def tabs(self) -> list[Target]:
        """Returns the tabs. Closes developer tools that the agent has opened: it may change a page only by using it.
        Raises EnvironmentAway."""
        tabs = {}
        for one in await self._got("GET", "/json/list"):
            if one["url"].startswith(TOOLS):
                await self._got("GET", f"/json/close/{one['id']}", text=True)
            elif one["type"] == "page":
                tabs[one["id"]] = Target(one["id"], one["title"], one["url"], one["webSocketDebuggerUrl"])
        known = [one.id for one in self.targets if one.id in tabs]
        new = [name for name in reversed(tabs) if name not in known]  # the newest comes first
        self.targets = [tabs[name] for name in [*known, *new]]
        return self.targets

    async def open(self, url: str) -> None:
        await self._got("PUT", f"/json/new?{quote(url, safe=':/?&=%#')}")

    async def _got(self, method: str, path: str, text: bool = False) -> Any:
        limit = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with self._client().request(method, BASE + path, timeout=limit) as answer:
                return await (answer.text() if text else answer.json(content_type=None))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise EnvironmentAway(f"the browser does not answer: {error}") from error

    async def send_command(
        self, target: Target, command: str, seconds: float = ANSWER_SECONDS, **parameters: Any
    ) -> Any:
        """Sends one command to a tab and returns its answer. Raises NoAnswer, EnvironmentAway."""
        try:
            async with asyncio.timeout(seconds):
                async with self._client().ws_connect(
                    target.socket, max_msg_size=MOST_BYTES, origin=BASE
                ) as line:
                    await line.send_str(json.dumps({"id": 1, "method": command, "params": parameters}))
                    async for message in line:
                        answer = json.loads(message.data)
                        if answer.get("id") == 1:
                            return _result(answer)
        except TimeoutError as error:
            raise NoAnswer from error
        except (aiohttp.ClientError, OSError, TypeError) as error:
            raise EnvironmentAway(f"the browser does not answer: {error}") from error
        raise NoAnswer

    async def ask(
        self, target: Target, function: str, *arguments: Any, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """Runs a function in the page and returns its result; None if it fails. Raises NoAnswer, EnvironmentAway."""
        called = f"({function})(...{json.dumps(arguments)})"
        reply = await self.send_command(
            target, "Runtime.evaluate", seconds, expression=called, returnByValue=True, awaitPromise=True
        )
        return reply.get("result", {}).get("value")

    async def front(self) -> Target | None:
        """Returns the visible tab."""
        for one in reversed(await self.tabs()):
            try:
                if await self.ask(one, "() => document.visibilityState", seconds=2.0) == "visible":
                    return one
            except NoAnswer:
                return one
        return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _result(answer: Any) -> Any:
    if "error" in answer:
        raise NoAnswer(str(answer["error"].get("message")))
    return answer["result"]
