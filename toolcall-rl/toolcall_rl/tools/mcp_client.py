"""A client of Model Context Protocol servers over stdio: one line of JSON-RPC per message (specification of
2025-06-18)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from slime.agents.child_process import end_child
from slime.errors import EnvironmentAway

VERSION = "2025-06-18"
LONGEST_LINE = 16 << 20
NO_METHOD = -32601
END_SECONDS = 2.0


class McpError(Exception):
    """The server's error message."""


class McpClient:
    """One server process. Requests may overlap; use it in one event loop."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], seconds: float) -> None:
        self.command, self.environment, self.seconds = list(command), dict(environment), seconds
        self.process: asyncio.subprocess.Process | None = None
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.number = 0
        self.reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises EnvironmentAway if the server did not start or complete the handshake."""
        try:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=self.environment,
                limit=LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvironmentAway(f"the MCP server {self.command[0]} did not start: {error}") from error
        self.reader = asyncio.create_task(self._read())
        about = {"name": "openclaw-rl", "version": "1"}
        greeting = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
        try:
            await self.request("initialize", greeting)
            await self._send({"method": "notifications/initialized"})
        except (McpError, EnvironmentAway, TimeoutError) as error:
            await self.close()
            raise EnvironmentAway(
                f"the MCP server {self.command[0]} did not complete the handshake: {error or 'no answer'}"
            ) from error

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None and not self._done()

    def _done(self) -> bool:
        return self.reader is None or self.reader.done()

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Returns the result of a request.

        Raises:
            McpError: the server rejects it.
            TimeoutError: no answer arrived in time; the request is cancelled.
            EnvironmentAway: the server has ended.
        """
        self.number += 1
        number, future = self.number, asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await asyncio.wait_for(future, self.seconds)
        except TimeoutError:
            with contextlib.suppress(EnvironmentAway):
                await self._send({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise
        finally:
            self.waiting.pop(number, None)

    async def _send(self, message: Mapping[str, Any]) -> None:
        if not self.alive:
            raise EnvironmentAway(f"the MCP server {self.command[0]} has ended")
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            await self.process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise EnvironmentAway(f"the MCP server {self.command[0]} has ended") from error

    async def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        try:
            while line := await self.process.stdout.readline():
                with contextlib.suppress(ValueError):  # some servers print other text to this channel
                    await self._received(json.loads(line))
        except (ValueError, EnvironmentAway):
            pass  # the line exceeds the limit, or no caller waits for it
        finally:
            for future in self.waiting.values():
                if not future.done():
                    future.set_exception(EnvironmentAway(f"the MCP server {self.command[0]} has ended"))

    async def _received(self, message: object) -> None:
        if not isinstance(message, dict):
            return
        if "method" in message:
            if "id" in message:  # a ping, or a request for a feature that this client does not offer
                pong = (
                    {"result": {}}
                    if message["method"] == "ping"
                    else {"error": {"code": NO_METHOD, "message": "?"}}
                )
                await self._send({"id": message["id"], **pong})
            return
        future = self.waiting.get(message.get("id", 0))
        if future is None or future.done():
            return
        if "error" in message:
            error = message["error"]
            future.set_exception(
                McpError(str(error.get("message", error) if isinstance(error, dict) else error))
            )
        else:
            future.set_result(message.get("result"))

    async def close(self) -> None:
        """Closes the server's input, as the protocol requires, and kills it if it does not exit."""
        if self.process is None:
            return
        await end_child(self.process, END_SECONDS)
        if self.reader is not None:
            await self.reader
