"""Inverts mini-swe-agent's loop: its agent runs in a thread and requests answers, so that it appears as an
environment to the episode. Its answers are therefore sampled, recorded and trained like those of any other agent,
with exact token ids."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from slime.agents import Action, Observation, Outcome, Start, Task, Tool, ToolCall
from slime.agents.protocol import Message
from slime.agents.tool_calls import CallFormat, loose_calls
from slime.sandbox import Finished
from swe_rl.checkout import agents_box
from swe_rl.environment import STEP_SECONDS, SweEnvironment, anything
from swe_rl.grade import Grader
from swe_rl.instance import Instance
from swe_rl.mini.parts import AskingModel, BoxedCommands, configuration, load, module, tools_of

PLACE = "/testbed"  # the prompts of the package mention this path
STATUS = {"Submitted": "submitted", "LimitsExceeded": "step_limit", "RepeatedFormatError": "format_errors"}


class TextFormat(CallFormat):
    """A format for an agent that parses answers itself, and itself reports errors to the model."""

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """Returns the calls that can be parsed; they are used for counts and judges."""
        return tuple(ToolCall(name, arguments) for name, arguments in loose_calls(text))


@dataclass(frozen=True)
class Ended:
    """The agent's result: its exit status and submission, or its exception."""

    status: str = ""
    submission: str = ""
    error: Exception | None = None


class _Closed(Exception):
    """The episode no longer waits for the agent."""


class Seat:
    """One run of the package's agent in a separate thread. The thread waits in `ask` while the model generates."""

    def __init__(self, run: Callable[[Callable[[list[Message]], str]], dict[str, Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[list[Message] | Ended] = asyncio.Queue()
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(run,), name="mini-swe-agent", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    async def next(self, answer: str | None = None) -> list[Message] | Ended:
        """Sends `answer` to the agent if it is given; returns the next messages for the model, or the agent's
        result."""
        if answer is not None:
            self._answers.put(answer)
        return await self._events.get()

    async def close(self) -> None:
        """Ends the agent; waits for a running command."""
        self._answers.put(None)
        await asyncio.to_thread(self._thread.join)

    def _ask(self, messages: list[Message]) -> str:
        self._say(messages)
        answer = self._answers.get()
        if answer is None:
            raise _Closed
        return answer

    def _work(self, run: Callable[[Callable[[list[Message]], str]], dict[str, Any]]) -> None:
        try:
            about = run(self._ask)
            self._say(Ended(about.get("exit_status", ""), about.get("submission", "")))
        except Exception as error:
            self._say(Ended(error=error))

    def _say(self, event: list[Message] | Ended) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)


class MiniSweEnvironment(SweEnvironment):
    """Like `SweEnvironment`, with the loop, the prompts and the formats of mini-swe-agent.

    Args:
        config: one of its configurations, or a file; see `configuration`.
        steps: limit of the model's answers.
    """

    place = PLACE

    def __init__(
        self,
        config: str,
        grader: Grader | None = None,
        step_seconds: float = STEP_SECONDS,
        threads: Executor | None = None,
        steps: int = 20,
        check: Callable[[Instance], None] = anything,
    ) -> None:
        super().__init__(grader, step_seconds, threads, check)
        self.config, self.limit = configuration(config), steps
        self.seat: Seat | None = None
        self.model: AskingModel | None = None
        self.submission = ""

    async def reset(self, task: Task) -> Start:
        """Raises DataError for a task without an instance, ConfigError for a configuration that the agent rejects."""
        await self.prepare(task)
        self.seat = Seat(self._run)
        first = await self.seat.next()
        if isinstance(first, Ended):
            raise first.error or RuntimeError(f"the agent ended before it began: {first.status}")
        return Start(first, tools_of(self.config["model"]))

    async def step(self, action: Action) -> Observation:
        """Raises the sandbox's exception if a command failed with one."""
        assert self.seat is not None, "reset comes first"
        event = await self.seat.next(action.text)
        if not isinstance(event, Ended):
            return Observation(event)
        if event.error is not None:
            raise event.error
        self.exit_status = STATUS.get(event.status, event.status)
        self.submission = event.submission
        return Observation(done=True)

    async def evaluate(self) -> Outcome:
        outcome = await super().evaluate()
        errors = self.model.format_errors if self.model is not None else 0
        return Outcome(outcome.score, outcome.solved, {**outcome.details, "format_errors": errors})

    async def patch(self) -> tuple[str, str]:
        """Returns the submission if it is a patch; otherwise the difference from a clean index."""
        if self.submission.startswith("diff --git "):
            return self.submission, "submission"
        return await super().patch()

    async def close(self) -> None:
        if self.seat is not None:
            await self.seat.close()
            self.seat = None
        await super().close()

    def _run(self, ask: Callable[[list[Message]], str]) -> dict[str, Any]:
        """Runs the agent, in its thread."""
        load()
        assert self.instance is not None
        commands = BoxedCommands(self._command, self.place)
        self.model = AskingModel(self.config["model"], ask)
        settings = {**self.config["agent"], "step_limit": self.limit, "cost_limit": 0.0}
        agent = module("minisweagent.agents.default").DefaultAgent(self.model, commands, **settings)
        ended: dict[str, Any] = agent.run(self.instance.problem_statement)
        return ended

    def _command(self, command: str) -> Finished:
        self.steps += 1
        return agents_box(command, self.step_seconds, self._work())
