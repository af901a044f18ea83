"""Turns an environment into a generate function, for --custom-generate-function-path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from slime.agents.episode import Episode, EpisodeLimits, StepJudging
from slime.agents.protocol import Environment, Task
from slime.agents.step_judge import StepJudge
from slime.agents.step_prompt import StepPrompt, step_prompt
from slime.agents.tool_calls import CallFormat
from slime.errors import ConfigError, EnvironmentAway
from slime.types import Sample, fresh

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)


class Generate(Protocol):
    """A function for --custom-generate-function-path."""

    def __call__(
        self, args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
    ) -> Awaitable[Sample | list[Sample]]: ...


def agent(
    make_environment: Callable[[], Environment],
    limits: EpisodeLimits | None = None,
    *,
    parallel: int = 32,
    attempts: int = 3,
    format: CallFormat | None = None,
    per_turn: bool = False,
    step_prompt: StepPrompt = step_prompt,
) -> Generate:
    """Returns the generate function of an agent in environments of one kind.

    The reward is {"score", "acc"}, so the run needs --reward-key score. The task of an episode is its prompt, label
    and metadata. An interrupted episode is started again.

    Args:
        parallel: concurrent episodes in this process.
        attempts: maximum number of environments if they are unavailable. After the last one the sample fails: slime
            counts the failure, requeues the group, and does not train on it.
        format: format of the model's calls; by default that of Qwen and Hermes.
        per_turn: one sample a turn instead of one for the whole trajectory.
        step_prompt: with --prm-enable, returns the judge's prompt for a step. Steps that the environment scores itself
            are not judged, nor are those of evaluations.

    Raises:
        ConfigError: the limits fold observations or remove pictures, which needs `per_turn`.
    """
    limits = limits or EpisodeLimits()
    if not per_turn and (limits.context == "fold" or limits.pictures is not None):
        name = "pictures=..." if limits.pictures is not None else 'context="fold"'
        raise ConfigError(
            f"EpisodeLimits({name}) changes earlier prompts, so it needs agent(..., per_turn=True)"
        )
    slots = asyncio.Semaphore(parallel)

    async def generate(
        args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
    ) -> Sample | list[Sample]:
        task = Task(sample.prompt, sample.label, sample.metadata)
        judging = StepJudging(StepJudge.of(args), step_prompt) if args.prm_enable and not evaluation else None
        async with slots:
            for attempt in range(1, attempts + 1):
                started = fresh(sample)
                started.metadata["environments_away"] = attempt - 1
                environment = make_environment()
                try:
                    calls = format or CallFormat()
                    episode = Episode(
                        args, started, sampling_params, environment, limits, calls, per_turn, judging
                    )
                    return await episode.run(task)
                except EnvironmentAway as error:
                    logger.warning(
                        "attempt %d for sample %s failed, the environment is unavailable: %s",
                        attempt,
                        sample.index,
                        error,
                    )
                    if attempt == attempts:
                        raise
                finally:
                    await asyncio.shield(_closed(environment))
        raise AssertionError("unreachable")

    return generate


async def _closed(environment: Environment) -> None:
    """Closes the environment. A failure is only logged, because it does not affect the episode."""
    try:
        await environment.close()
    except Exception:
        logger.exception("an environment could not be closed")
