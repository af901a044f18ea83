"""The messages between an agent and an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
"""A chat message: role and content."""


@dataclass(frozen=True)
class Task:
    """The task of an episode, from one row of the prompt file.

    Attributes:
        prompt: a text, or the first messages.
        label: the correct answer, which only the environment sees.
    """

    prompt: str | list[Message]
    label: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """A function that the model may call; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def spec(self) -> dict[str, Any]:
        """Returns the tool in the format of chat templates and APIs."""
        about = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": about}


@dataclass(frozen=True)
class Start:
    """The start of an episode: the conversation for the model, and its tools."""

    messages: list[Message]
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Action:
    """One turn of the model.

    Attributes:
        text: the sampled text with its special tokens, except the one that ends the turn.
        calls: its tool calls; empty for a final answer.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Observation:
    """The environment's response to an action.

    Attributes:
        messages: messages for the model's next turn.
        done: whether the episode has ended; the messages are not shown then.
        step_score: score of the action, for step rewards; None if it has none.
    """

    messages: list[Message] = field(default_factory=list)
    done: bool = False
    step_score: float | None = None


@dataclass(frozen=True)
class Step:
    """One turn and its observation, as a judge of steps sees them.

    Attributes:
        text, calls: text and calls of the action.
        shown: messages of the environment.
        error: the reason why a call is invalid; None if all are valid.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    shown: tuple[Message, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a whole episode.

    Attributes:
        score: the reward.
        solved: whether the task counts as solved in pass rates.
        details: numbers and texts for logs.
    """

    score: float
    solved: bool
    details: Mapping[str, Any] = field(default_factory=dict)


class Environment(Protocol):
    """The environment of one episode. Any method may raise `EnvironmentAway` for a failure that the agent did not
    cause: the episode is then retried in a new environment."""

    async def reset(self, task: Task) -> Start: ...

    async def step(self, action: Action) -> Observation: ...

    async def evaluate(self) -> Outcome:
        """Called once, also if the episode was truncated."""
        ...

    async def close(self) -> None:
        """Always called last; frees the episode's resources."""
        ...
