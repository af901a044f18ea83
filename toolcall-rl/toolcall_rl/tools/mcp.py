"""Tools of an MCP server: one process for all episodes of a run, restarted after it has ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slime.agents.protocol import Tool
from slime.agents.schemas import problem_of
from slime.errors import ConfigError, EnvironmentAway
from toolcall_rl.tools.mcp_client import McpClient, McpError
from toolcall_rl.tools.toolset import CallLimits, Opened


@dataclass
class McpSource:
    """An MCP server, which is the user's own program and runs outside the sandbox. Its environment is PATH, HOME and
    the variables in the config.

    Attributes:
        only: names of the offered tools; empty: all.
        prefix: added to the tools' names for the model.
        parallel: concurrent calls.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    limits: CallLimits = field(default_factory=CallLimits)
    only: frozenset[str] = frozenset()
    prefix: str = ""
    parallel: int = 8
    client: McpClient | None = None
    offered: list[Tool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.starting, self.places = asyncio.Lock(), asyncio.Semaphore(self.parallel)

    async def connected(self) -> McpClient:
        """Returns the client of the running server. Raises EnvironmentAway."""
        async with self.starting:
            if self.client is None or not self.client.alive:
                if self.client is not None:
                    await self.client.close()
                self.client = McpClient(self.command, self.environment, self.limits.seconds)
                await self.client.start()
                self.offered = await self._listed(self.client)
            return self.client

    async def _listed(self, client: McpClient) -> list[Tool]:
        tools: list[Tool] = []
        cursor: dict[str, Any] = {}
        while True:
            try:
                page = await client.request("tools/list", cursor)
            except (McpError, TimeoutError) as error:
                raise EnvironmentAway(f"the MCP server {self.command[0]} lists no tools: {error}") from error
            try:
                tools += [
                    self._tool(row) for row in page["tools"] if not self.only or row["name"] in self.only
                ]
                more = page.get("nextCursor")
            except (KeyError, TypeError, AttributeError) as error:
                raise EnvironmentAway(
                    f"the MCP server {self.command[0]} sent an invalid list of tools: {error!r}"
                ) from error
            if not more:
                return tools
            cursor = {"cursor": more}

    def _tool(self, row: Mapping[str, Any]) -> Tool:
        """Raises ConfigError if no call can satisfy the tool's schema."""
        schema = row.get("inputSchema") or {"type": "object", "properties": {}}
        if problem := problem_of(schema):
            raise ConfigError(f"tool {row['name']} of {self.command[0]}: {problem}; leave it out with only")
        return Tool(self.prefix + row["name"], row.get("description") or "", schema)

    async def tools(self) -> Sequence[Tool]:
        await self.connected()
        return self.offered

    def opened(self) -> Opened:
        return _Calls(self)

    async def close(self) -> None:
        if self.client is not None:
            await self.client.close()
            self.client = None


class _Calls:
    """The server within one episode; the process belongs to the run, so the end of an episode does not end it."""

    def __init__(self, source: McpSource) -> None:
        self.source = source

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        client = await self.source.connected()
        own = name.removeprefix(self.source.prefix)
        async with self.source.places:
            try:
                result = await client.request("tools/call", {"name": own, "arguments": dict(arguments)})
            except McpError as error:
                return f"Error: {error}"
            except TimeoutError:
                return f"Error: {name} gave nothing within {self.source.limits.seconds:g} s"
        return text_of(result)

    async def close(self) -> None:
        """Does nothing: there is nothing to free."""


def text_of(result: Any) -> str:
    """Returns the result of a call: its texts, or its structured content as JSON; other content is named by its
    type."""
    if not isinstance(result, dict):
        return json.dumps(result)
    content = [one for one in result.get("content") or [] if isinstance(one, dict)]
    parts = [
        str(one.get("text", "")) if one.get("type") == "text" else f"[{one.get('type')}]" for one in content
    ]
    text = "\n".join(parts) or json.dumps(result.get("structuredContent") or "", ensure_ascii=False)
    return f"Error: {text}" if result.get("isError") else text
