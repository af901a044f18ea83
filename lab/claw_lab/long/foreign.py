"""Starts programs of other projects for environments."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

START_SECONDS = 120.0
HARBOR = "from harbor.cli.main import app; app()"


def clock() -> str:
    """Returns the configuration of a published MCP server as a tool."""
    command = [os.environ["MCP_PYTHON"], "-m", "mcp_server_time", "--local-timezone", "UTC"]
    return json.dumps({"tools": [{"type": "mcp", "command": command, "prefix": "clock_", "seconds": 60}]})


async def done(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0, command


@contextlib.asynccontextmanager
async def server(command: list[str], folder: Path, port: int) -> AsyncIterator[None]:
    """Runs a server until the block ends."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(trust_env=False) as client:
            while time.monotonic() < until:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                assert process.returncode is None, "the server has ended"
                await asyncio.sleep(0.2)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
