"""The Python interpreter: one session per episode, in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slime.agents.protocol import Tool
from slime.agents.python_tool import PYTHON, PythonTool
from slime.errors import ConfigError, SandboxError
from slime.sandbox import Limits, PythonSession
from toolcall_rl.tools.toolset import CallLimits, Opened


@dataclass(frozen=True)
class PythonSource:
    """Interpreter sessions, which keep their variables between the calls of an episode."""

    name: str = PYTHON.name
    limits: CallLimits = field(default_factory=CallLimits)
    box: Limits = field(default_factory=Limits)

    async def tools(self) -> Sequence[Tool]:
        return [replace(PYTHON, name=self.name)]

    def opened(self) -> Opened:
        return _Session(PythonTool(self.box, self.limits.seconds))

    def try_one(self) -> None:
        """Raises ConfigError if there is no sandbox, or if no interpreter starts within the limits."""
        with PythonSession(self.box) as session:
            try:
                session.start()
            except SandboxError as error:
                raise ConfigError(
                    f"the tool {self.name} does not start within its limits: {error}"
                ) from error


class _Session:
    def __init__(self, tool: PythonTool) -> None:
        self.tool = tool

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return (await self.tool.run(str(arguments["code"]))).text()

    async def close(self) -> None:
        await self.tool.close()
