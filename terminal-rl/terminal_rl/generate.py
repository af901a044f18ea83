"""The hooks of terminal agents: the generate function, and what is checked before a run begins."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.agents import EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.agents.sandbox import require_sandbox
from slime.arguments.declare import read
from slime.errors import ConfigError
from slime.plan.environments import EnvironmentUse
from slime.types import Sample
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.flags import FLAGS, TerminalFlags
from terminal_rl.system import LIMITS, WORKSPACE_BYTES

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide

__all__ = ["FLAGS", "environment_use", "generate", "start"]


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any]
) -> Sample | list[Sample]:
    """One episode. The reward is {"score": 2 * accuracy - 1, "acc": solved}, so the run needs --reward-key score."""
    return await _function(read(TerminalFlags, args))(args, sample, sampling_params)


def environment_use(args: GenerationSide) -> EnvironmentUse:
    """For the plan: what a box and its workspace may take, for each episode at a time."""
    return EnvironmentUse(read(TerminalFlags, args).parallel_envs, LIMITS.memory, WORKSPACE_BYTES)


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """For --service-path: refuses a run that could play no episode; it starts no process.

    Raises:
        ConfigError: there is no sandbox, or no folder of tasks.
    """
    tasks_dir = read(TerminalFlags, args).tasks_dir
    require_sandbox()
    if tasks_dir is not None and not Path(tasks_dir).is_dir():
        raise ConfigError(f"--tasks-dir (DATASET_DIR) {tasks_dir} is no folder")
    return []


@functools.lru_cache
def _function(flags: TerminalFlags) -> Generate:
    require_sandbox()
    settings = TerminalSettings(
        tasks_dir=Path(flags.tasks_dir) if flags.tasks_dir else None,
        system=flags.terminal_system_prompt,
        limits=replace(LIMITS, output_chars=flags.tool_output_chars),
        threads=ThreadPoolExecutor(flags.parallel_envs, thread_name_prefix="terminal"),
    )
    limits = EpisodeLimits(turns=flags.max_steps)
    return agent(lambda: TerminalEnvironment(settings), limits, parallel=flags.parallel_envs)
