"""An environment as a generate function, for --custom-generate-function-path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from slime.agents.episode import Episode, EpisodeLimits
from slime.agents.protocol import Environment, Task
from slime.agents.tool_calls import CallFormat
from slime.errors import EnvironmentAway
from slime.rollout.groups import fresh
from slime.types import Sample

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide

logger = logging.getLogger(__name__)
Generate = Callable[["GenerationSide", Sample, dict[str, Any]], Awaitable[Sample]]


def agent(
    make_environment: Callable[[], Environment],
    limits: EpisodeLimits | None = None,
    *,
    parallel: int = 32,
    attempts: int = 3,
    format: CallFormat | None = None,
) -> Generate:
    """The generate function of an agent in environments of one kind.

    The reward is {"score", "acc"}, so the run needs --reward-key score. The task of an episode is its prompt, label and
    metadata. An interrupted episode is begun anew.

    Args:
        parallel: episodes at a time in this process.
        attempts: environments that are tried where one is away. After the last the sample fails: slime counts that,
            puts its group back, and trains on none of it.
        format: of the model's calls; by default that of Qwen and Hermes.
    """
    places = asyncio.Semaphore(parallel)

    async def generate(args: GenerationSide, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
        task = Task(sample.prompt, sample.label, sample.metadata)
        async with places:
            for attempt in range(1, attempts + 1):
                begun = fresh(sample)
                begun.metadata["environments_away"] = attempt - 1
                environment = make_environment()
                try:
                    episode = Episode(
                        args,
                        begun,
                        sampling_params,
                        environment,
                        limits or EpisodeLimits(),
                        format or CallFormat(),
                    )
                    return await episode.run(task)
                except EnvironmentAway as error:
                    logger.warning("environment %d of sample %s: %s", attempt, sample.index, error)
                    if attempt == attempts:
                        raise
                finally:
                    await asyncio.shield(environment.close())
        raise AssertionError("unreachable")

    return generate
