"""The environment of one instance: a shell in the repository, a patch at the end, and hidden tests that grade it."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

from slime.agents import Action, Message, Observation, Outcome, Start, Task, Tool
from slime.errors import DataError
from slime.sandbox import Finished, Workspace
from swe_rl.checkout import agents_box, checkout, commit, patch_of
from swe_rl.grade import Grade, Grader
from swe_rl.instance import Instance, to_instance

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SHOWN = 10_000  # characters of an output; of a longer one, the first and last halves are shown
STEP_SECONDS = 60.0
BASH = Tool(
    "bash",
    "Runs a command in the repository's folder; each command is a new shell.",
    {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command."}},
        "required": ["command"],
    },
)
SYSTEM = (
    "You repair a Python repository. Run one command at a time and look at what it prints before you go on. First "
    "find the cause, then change the source, then check your change. Do not change tests or configuration: hidden "
    f"tests decide, in a fresh copy with your changes. When you are done, run: echo {SUBMIT}"
)
P = ParamSpec("P")
T = TypeVar("T")
_BLOCK = re.compile(r"```(?:bash|sh)\n(.*?)\n?```", re.DOTALL)


def anything(instance: Instance) -> None:
    """Accepts any instance, including those of custom files."""


class SweEnvironment:
    """A workspace with the broken repository, without the deciding tests. One object per episode.

    The agent calls the tool `bash`, or writes one block of bash. `metadata["instance"]` of the task is the instance.

    Args:
        step_seconds: time limit of one command.
        threads: threads that wait for commands (asyncio has too few).
        check: raises DataError for an instance that this machine does not serve.
    """

    place = "/workspace"

    def __init__(
        self,
        grader: Grader | None = None,
        step_seconds: float = STEP_SECONDS,
        threads: Executor | None = None,
        check: Callable[[Instance], None] = anything,
    ) -> None:
        self.check = check
        self.grader, self.step_seconds, self.threads = grader or Grader(), step_seconds, threads
        self.instance: Instance | None = None
        self.work: Workspace | None = None
        self.steps, self.exit_status = 0, "step_limit"

    async def reset(self, task: Task) -> Start:
        """Raises DataError for a task without an instance."""
        return self.opening((await self.prepare(task)).problem_statement)

    async def prepare(self, task: Task) -> Instance:
        """Creates the repository for the agent. Raises DataError for a task without an instance."""
        row = task.metadata.get("instance")
        if not isinstance(row, dict):
            raise DataError(
                "the task's metadata has no 'instance': create prompts with python -m swe_rl.prompts"
            )
        self.instance = to_instance(row, str(row.get("instance_id", "instance")))
        self.check(self.instance)
        self.work = await self._in_thread(checkout, self.instance, True, self.place)
        await self._in_thread(commit, self.instance, self.work)
        return self.instance

    @staticmethod
    def opening(problem: str) -> Start:
        """Returns the agent's first messages."""
        asked: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": problem}]
        return Start(asked, (BASH,))

    async def step(self, action: Action) -> Observation:
        commands = commands_of(action)
        if not commands:
            self.exit_status = "answered"
            return Observation(done=True)
        shown: list[Message] = []
        for command in commands:
            self.steps += 1
            done = await self._in_thread(agents_box, command, self.step_seconds, self._work())
            if SUBMIT in done.output.split("\n", 1)[0] and done.exit_code == 0:
                self.exit_status = "submitted"
                return Observation(done=True)
            shown.append({"role": "tool", "content": shown_text(done)})
        return Observation(shown)

    async def evaluate(self) -> Outcome:
        """Returns +1 if the hidden tests pass in a fresh copy with the agent's patch, else -1."""
        assert self.instance is not None
        patch, source = await self.patch()
        grade: Grade = await self._in_thread(self.grader.grade, self.instance, patch)
        details: dict[str, Any] = {
            **grade.to_dict(),
            "instance_id": self.instance.instance_id,
            "steps": self.steps,
            "exit_status": self.exit_status,
            "patch": patch[:20_000],
            "patch_source": source,
        }
        return Outcome(1.0 if grade.resolved else -1.0, grade.resolved, details)

    async def patch(self) -> tuple[str, str]:
        """Returns the agent's changes as a patch, and where the patch was obtained from."""
        assert self.instance is not None
        return await self._in_thread(patch_of, self.instance, self._work()), "diff"

    async def close(self) -> None:
        if self.work is not None:
            await self._in_thread(self.work.close)
            self.work = None

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)

    def _work(self) -> Workspace:
        assert self.work is not None, "reset comes first"
        return self.work


def commands_of(action: Action) -> list[str]:
    """Returns the commands of the tool calls, or of the single bash block in a text."""
    if action.calls:
        return [str(call.arguments["command"]) for call in action.calls]
    blocks = _BLOCK.findall(action.text)
    return blocks if len(blocks) == 1 else []


def shown_text(done: Finished) -> str:
    text = done.output if done.error is None else f"{done.output}\n{done.error}"
    if len(text) > SHOWN:
        left_out = len(text) - SHOWN
        text = f"{text[: SHOWN // 2]}\n[{left_out} characters left out]\n{text[-SHOWN // 2 :]}"
    code = "none" if done.exit_code is None else done.exit_code
    return f"<returncode>{code}</returncode>\n<output>\n{text.rstrip()}\n</output>"
