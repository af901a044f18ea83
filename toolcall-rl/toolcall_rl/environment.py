"""The environment of one episode: a problem, tools to solve it, and a check of the answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from slime.agents.protocol import Action, Observation, Outcome, Start, Task
from slime.errors import EnvironmentAway, RewardError
from toolcall_rl.prompt import first_messages
from toolcall_rl.reading import ReToolFormat
from toolcall_rl.rewards import RewardRules, answer_of, right_answer
from toolcall_rl.tools.toolset import Toolset

NO_MORE = "Error: no more calls are allowed; answer now"


@dataclass(frozen=True)
class Rules:
    """Settings of every episode.

    Attributes:
        rewards: rules of the score.
        most_calls: limit of tool calls; later ones are rejected.
        tools_in_prompt: describe the tools in the system message, for chat templates that do not.
    """

    rewards: RewardRules
    most_calls: int = 16
    tools_in_prompt: bool = False


class ToolEnvironment:
    """One episode. The interpreter starts with the first call."""

    def __init__(self, toolset: Toolset, format: ReToolFormat, rules: Rules) -> None:
        """Raises ConfigError if a tool needs a sandbox and none is available."""
        self.format, self.rules = format, rules
        self.tools = toolset.opened()
        self.label: object = None
        self.last, self.made, self.refused = "", 0, 0

    async def reset(self, task: Task) -> Start:
        self.label = task.label
        specs = await self.tools.specs()
        messages = first_messages(task, specs if self.rules.tools_in_prompt else ())
        return Start(messages, specs)

    async def step(self, action: Action) -> Observation:
        self.last = action.text
        if not action.calls:
            return Observation(done=True)
        shown = []
        for call in action.calls:
            if self.made >= self.rules.most_calls:
                self.refused += 1
                shown += self.format.shown(NO_MORE)
                continue
            self.made += 1
            shown += self.format.shown(await self.tools.call(call.name, call.arguments))
        return Observation(shown)

    async def evaluate(self) -> Outcome:
        rewards = self.rules.rewards
        answer = answer_of(self.last, rewards.check)
        try:
            right = await asyncio.to_thread(right_answer, answer, self.label, rewards.check)
        except RewardError as error:
            raise EnvironmentAway(f"an answer could not be checked: {error}") from error
        details = {"pred": answer, "calls_made": self.made, "calls_refused": self.refused}
        return Outcome(rewards.score(right, self.made), right, details)

    async def close(self) -> None:
        await self.tools.close()
