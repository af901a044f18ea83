"""An environment of another Python as one of ours: our loop samples, the other side answers and rewards."""

from __future__ import annotations

import secrets

from slime.agents.foreign.worker import Json, Process, Worker
from slime.agents.pool import wire
from slime.agents.protocol import Action, Observation, Outcome, Start, Task
from slime.agents.tool_calls import OPEN
from slime.errors import EnvironmentAway


class ForeignEnvironment:
    """One episode in a worker. Where its process ends, the episode begins again in a new one."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.episode = secrets.token_hex(8)
        self.process: Process | None = None

    async def reset(self, task: Task) -> Start:
        self.process = await self.worker.process()
        return wire.start_of(await self._asked("reset", task=wire.task_meta(task)))

    async def step(self, action: Action) -> Observation:
        said = wire.action_body(action)
        if action.calls:  # the other side writes calls in a field of their own
            said["text"] = action.text.partition(OPEN)[0].rstrip()
        return wire.observation_of(await self._asked("step", action=said))

    async def evaluate(self) -> Outcome:
        return wire.outcome_of(await self._asked("evaluate"))

    async def close(self) -> None:
        if self.process is not None and self.process.alive:
            try:
                await self._asked("close")
            except EnvironmentAway:
                pass  # nothing of the episode is left there

    async def _asked(self, do: str, **body: object) -> Json:
        if self.process is None:
            raise EnvironmentAway("the environment was not reset")
        return await self.process.ask(do, episode=self.episode, **body)
