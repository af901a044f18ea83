"""The environment of one episode: shells on a workspace, and finally the verdict of the tests."""

from __future__ import annotations

import asyncio
import datetime
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from slime.agents import Action, Observation, Outcome, Start, Task, Tool, ToolCall
from slime.agents.protocol import Message
from slime.sandbox import Limits, Shells, Workspace
from terminal_rl.system import LIMITS, check_speed, read_only_of
from terminal_rl.tasks import TerminalTask, task_of
from terminal_rl.tools import TOOLS, answer

MOST_CALLS = 8  # per turn
Found = TypeVar("Found")


@dataclass(frozen=True)
class TerminalSettings:
    """Settings of all episodes of a run.

    Attributes:
        tasks_dir: folder to which the tasks in rows are relative.
        tools: tools that the model may call.
        system: whether the conversation begins with the system prompt.
        limits: limits of the agent's sandbox; its `output_chars` limits the output of one call.
        threads: threads for calls that wait for sandboxes, one per concurrent episode.
    """

    tasks_dir: Path | None = None
    tools: Sequence[Tool] = TOOLS
    system: bool = True
    limits: Limits = LIMITS
    threads: ThreadPoolExecutor | None = None


class TerminalEnvironment:
    """One episode. Its sandbox starts with the first tool call, and ends before the tests run."""

    def __init__(self, settings: TerminalSettings) -> None:
        self.settings = settings
        self.task: TerminalTask | None = None
        self.workspace: Workspace | None = None
        self.shells: Shells | None = None
        self.seconds = 0.0

    async def reset(self, task: Task) -> Start:
        """Raises TaskError, EnvironmentAway."""
        return await self._in_thread(lambda: self._begin(task))

    def _begin(self, row: Task) -> Start:
        self.task = task_of(row, self.settings.tasks_dir)
        self.workspace = self.task.workspace()
        seen = read_only_of(self.workspace)
        self.shells = Shells(self.workspace, self.settings.limits, seen, image=self.workspace.image)
        first = messages(self.task, self.workspace.place, self.settings.system)
        return Start(first, tuple(self.settings.tools))

    async def step(self, action: Action) -> Observation:
        """Runs the calls of a turn in order. A turn without a call ends the episode, and so does the task's time
        limit for tools. The model's own time does not count."""
        assert self.task is not None
        shown = []
        for call in action.calls[:MOST_CALLS]:
            began = time.monotonic()
            shown.append({"role": "tool", "content": await self._in_thread(partial(self._call, call))})
            self.seconds += time.monotonic() - began
        if len(action.calls) > MOST_CALLS:
            shown.append(
                {"role": "tool", "content": f"Error: only the first {MOST_CALLS} calls of a turn are run"}
            )
        return Observation(shown, done=not action.calls or self.seconds > self.task.agent_seconds)

    def _call(self, call: ToolCall) -> str:
        assert self.task is not None and self.shells is not None
        return answer(self.shells, call, max(0.0, self.task.agent_seconds - self.seconds))

    async def evaluate(self) -> Outcome:
        """Ends the agent's sandbox and all its processes, then runs the tests. Raises EnvironmentAway."""
        return await self._in_thread(self._judged)

    def _judged(self) -> Outcome:
        assert self.task is not None and self.workspace is not None and self.shells is not None
        self.shells.close()
        verdict = self.task.verdict(self.workspace)
        if not verdict.solved and self.seconds > self.task.agent_seconds:
            check_speed()
        details: dict[str, Any] = {
            "task": self.task.name,
            "tests": verdict.total,
            "tool_seconds": self.seconds,
        }
        details |= {"accuracy": verdict.accuracy, "raw_score": verdict.accuracy}
        if verdict.rewards is not None:
            details["rewards"] = dict(verdict.rewards)
        details["failures"] = list(verdict.failures)[:20]
        return Outcome(2 * verdict.accuracy - 1, verdict.solved, details)

    async def close(self) -> None:
        await self._in_thread(self._end)

    def _end(self) -> None:
        if self.shells is not None:
            self.shells.close()
        if self.workspace is not None:
            self.workspace.close()

    async def _in_thread(self, work: Callable[[], Found]) -> Found:
        """Runs blocking work in a thread, so that other episodes continue."""
        return await asyncio.get_running_loop().run_in_executor(self.settings.threads, work)


SYSTEM = """You are a software engineer who solves tasks in a terminal, alone and completely.

<operating_environment>
System: Linux in a sandbox, {machine}, without a network. You are an ordinary user; there is no sudo.
Folder: you begin in {folder}, which holds the files of the task. Only what you leave there is looked at in the end.
Date: {date}
</operating_environment>

<instructions>
Look at what is there before you change it (pwd, ls). Plan, then take one step after the other and look at its output.
Use the tools for everything that you do. Absolute paths are safest. Keep what you write to the user short.
When all parts of the task are done and you have checked the result, answer without a tool call: that ends your work.
</instructions>

<terminal>
A command that ends by itself: shell_exec with block. One that goes on or asks questions: shell_exec without block, then
shell_view and shell_write_to_process; shell_kill_process ends it. Programs that ask for confirmation need -y or its like.
</terminal>"""


def messages(task: TerminalTask, folder: str, system: bool = True) -> list[Message]:
    """Returns the first messages of an episode."""
    user = {"role": "user", "content": f"Task name:{task.name}\nTask instruction: {task.instruction}"}
    if not system:
        return [{"role": "user", "content": task.instruction}]
    system_prompt = SYSTEM.format(
        machine=platform.machine(), folder=folder, date=datetime.date.today().isoformat()
    )
    return [{"role": "system", "content": system_prompt}, user]
