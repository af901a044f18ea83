"""The hooks of terminal agents: the generate function, and what is checked before a run begins."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.agents import EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.agents.sandbox import require_sandbox
from slime.errors import ConfigError
from slime.types import Sample
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.flags import FLAGS, TerminalFlags
from terminal_rl.system import LIMITS

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide

__all__ = ["FLAGS", "generate", "start"]


async def generate(args: GenerationSide, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """One episode. The reward is {"score": 2 * accuracy - 1, "acc": solved}, so the run needs --reward-key score."""
    flags = TerminalFlags(**{item.name: getattr(args, item.name) for item in fields(TerminalFlags)})
    return await _function(flags)(args, sample, sampling_params)


def start(args: Any, endpoints: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """For --service-path: refuses a run that could play no episode; it starts no process.

    Raises:
        ConfigError: there is no sandbox, or no folder of tasks.
    """
    require_sandbox()
    if args.tasks_dir is not None and not Path(args.tasks_dir).is_dir():
        raise ConfigError(f"--tasks-dir (DATASET_DIR) {args.tasks_dir} is no folder")
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
