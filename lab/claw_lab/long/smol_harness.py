"""A harness for through_gateway: smolagents, an agent of another project, plays the number game."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from smolagents import AgentError, OpenAIServerModel, Tool, ToolCallingAgent

from slime.agents import Outcome, Task
from slime.agents.through_gateway import SessionEndpoint, through_gateway

STEPS = 2


class Guess(Tool):
    name = "guess"
    description = "Says whether the number is right, too small or too large."
    inputs = {"number": {"type": "integer", "description": "the guess"}}  # noqa: RUF012
    output_type = "string"

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.is_solved, self.guesses = number, False, 0

    def forward(self, number: int) -> str:
        self.guesses += 1
        self.is_solved = self.is_solved or number == self.number
        return "right" if number == self.number else "too small" if number < self.number else "too large"


def run_agent(endpoint: SessionEndpoint, task: Task) -> Outcome:
    """Runs its own loop, prompts and parser once. A model that never finds the number is rewarded for short
    output."""
    headers = {**endpoint.headers}
    model = OpenAIServerModel(
        "policy",
        api_base=endpoint.base_url,
        api_key=endpoint.api_key,
        client_kwargs={"default_headers": headers, "max_retries": 0},
        **{**endpoint.sampling, "max_tokens": 96},
    )
    tool = Guess(int(task.label))
    agent: Any = ToolCallingAgent(tools=[tool], model=model, max_steps=STEPS, verbosity_level=0)
    with contextlib.suppress(AgentError):
        agent.run(str(task.prompt))
    written = agent.monitor.get_total_token_counts().output_tokens
    score = 1.0 if tool.is_solved else 0.5 / (1 + written / 100)
    return Outcome(score, tool.is_solved, {"tool_calls": tool.guesses, "tokens": written})


async def play(endpoint: SessionEndpoint, task: Task) -> Outcome:
    return await asyncio.to_thread(run_agent, endpoint, task)


generate = through_gateway(play, url=os.environ["HARNESS_GATEWAY"], parallel=4)
