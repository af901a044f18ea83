"""Checks values returned by an environment. An invalid value counts as an unavailable environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slime.agents.protocol import Observation, Outcome, Start, Tool
from slime.errors import EnvironmentAway

Answer = TypeVar("Answer")


def checked_start(value: object) -> Start:
    """Returns the checked start. Raises EnvironmentAway."""
    start = _of(value, Start, "reset of the environment")
    if not _messages(start.messages) or not start.messages:
        raise EnvironmentAway(
            f"reset of the environment must return at least one message, got {start.messages!r:.80}"
        )
    if not all(isinstance(tool, Tool) for tool in start.tools):
        raise EnvironmentAway(
            f"reset of the environment must return tools of class Tool, got {start.tools!r:.80}"
        )
    return start


def checked_observation(value: object) -> Observation:
    """Returns the checked observation. Raises EnvironmentAway."""
    observation = _of(value, Observation, "step of the environment")
    if not _messages(observation.messages):
        raise EnvironmentAway(
            f"step of the environment must return a list of messages, got {observation.messages!r:.80}"
        )
    if observation.step_score is None:
        return observation
    return replace(observation, step_score=_number(observation.step_score, "the score of a step"))


def checked_outcome(value: object, source: str = "evaluate of the environment") -> Outcome:
    """Returns the checked outcome. Raises EnvironmentAway."""
    outcome = _of(value, Outcome, source)
    if not isinstance(outcome.details, Mapping):
        raise EnvironmentAway(f"the details of an outcome must be a mapping, got {outcome.details!r:.80}")
    solved = _number(outcome.solved, "the field solved of an outcome")
    return replace(outcome, score=_number(outcome.score, "the score of an outcome"), solved=bool(solved))


def _of(value: object, kind: type[Answer], source: str) -> Answer:
    if not isinstance(value, kind):
        raise EnvironmentAway(f"{source} must return an object of class {kind.__name__}, got {value!r:.80}")
    return value


def _messages(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value)


def _number(value: object, what: str) -> float:
    """Returns a number; scalars of numpy and torch are accepted."""
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, int | float) or not math.isfinite(plain):
        raise EnvironmentAway(f"{what} must be a finite number, got {value!r:.80}")
    return float(plain)
