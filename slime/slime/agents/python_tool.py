"""A Python interpreter as a tool: a sandboxed session, started at the first call."""

from __future__ import annotations

import asyncio

from slime.agents.protocol import Tool
from slime.sandbox import Limits, PythonSession, Ran

PYTHON = Tool(
    "code_interpreter",
    "Runs Python code. Variables are kept between calls; print what you want to see.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code."}},
        "required": ["code"],
    },
)


class PythonTool:
    """One episode's interpreter. An episode without tool calls starts no sandbox.

    Args:
        seconds: time-out of one call.
    """

    def __init__(self, limits: Limits | None = None, seconds: float = 10.0) -> None:
        """Raises ConfigError if there is no sandbox."""
        self.session = PythonSession(limits)
        self.seconds = seconds

    async def run(self, code: str) -> Ran:
        """Runs code without blocking other episodes. Raises SandboxError."""
        return await asyncio.to_thread(self.session.run, code, self.seconds)

    async def close(self) -> None:
        await asyncio.to_thread(self.session.close)
