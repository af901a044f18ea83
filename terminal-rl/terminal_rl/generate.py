"""The hooks of terminal agents: the generate function, and the checks before a run begins."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_base.settings.declare import flag, read
from slime.agents import EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.errors import ConfigError
from slime.plan.environments import EnvironmentUse
from slime.pool import PoolEnvironment
from slime.pool.keys import check_address
from slime.sandbox import require_sandbox
from slime.types import Sample
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.system import LIMITS, WORKSPACE_BYTES

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

__all__ = ["FLAGS", "environment_use", "generate", "settings_of", "start"]


@dataclass(frozen=True)
class TerminalFlags:
    """Flags of terminal episodes."""

    parallel_envs: int = flag(32, "concurrent episodes", env=("PARALLEL_ENVS",), least=1)
    max_steps: int = flag(20, "turns of the model in one episode", env=("MAX_STEPS",), least=1)
    tasks_dir: str | None = flag(
        None, "folder to which the rows' task_path is relative; paths cannot leave it", env=("DATASET_DIR",)
    )
    env_server_url: str | None = flag(
        None,
        "address of a pool of terminals or its router; sandboxes then run there",
        env=("ENV_SERVER_URL",),
    )
    env_server_key: str | None = flag(None, "key of that pool", env=("ENV_SERVER_KEY",))
    terminal_system_prompt: bool = flag(
        True,
        "start with the system prompt; otherwise only with the instruction",
    )
    tool_output_chars: int = flag(4096, "maximum characters of one tool call's output", least=200)


FLAGS = (TerminalFlags,)


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """Runs one episode. The reward is {"score": 2 * accuracy - 1, "acc": solved}, so the run needs --reward-key
    score."""
    return await _function(read(TerminalFlags, args))(args, sample, sampling_params, evaluation)


def environment_use(args: GenerationSide) -> EnvironmentUse | None:
    """Returns the resources of a sandbox and its workspace per concurrent episode, for the plan; None if a pool
    provides them."""
    flags = read(TerminalFlags, args)
    use = EnvironmentUse(flags.parallel_envs, LIMITS.memory, WORKSPACE_BYTES)
    return use if flags.env_server_url is None else None


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """For --service-path: rejects a run whose episodes could not start; starts no process.

    Raises:
        ConfigError: sandboxes do not work, or the folder of tasks is missing (a remote pool has its own).
    """
    check_arguments(args)
    if read(TerminalFlags, args).env_server_url is None:
        require_sandbox()
    return []


def check_arguments(args: GenerationSide, endpoints: object = None, env: object = None) -> None:
    """Raises ConfigError, also in a dry run, for an invalid address or a missing folder of tasks."""
    flags = read(TerminalFlags, args)
    if flags.env_server_url is not None:
        check_address("--env-server-url (ENV_SERVER_URL)", flags.env_server_url)
    elif (folder := flags.tasks_dir) is not None and not Path(folder).is_dir():
        raise ConfigError(f"--tasks-dir (DATASET_DIR) {folder} is not a folder")


@functools.lru_cache
def _function(flags: TerminalFlags) -> Generate:
    limits, url = EpisodeLimits(turns=flags.max_steps), flags.env_server_url
    if url is not None:
        return agent(lambda: PoolEnvironment(url, flags.env_server_key), limits, parallel=flags.parallel_envs)
    settings = settings_of(flags)
    return agent(lambda: TerminalEnvironment(settings), limits, parallel=flags.parallel_envs)


def settings_of(flags: TerminalFlags) -> TerminalSettings:
    """Returns the settings of environments in this process. Raises ConfigError if sandboxes do not work."""
    require_sandbox()
    return TerminalSettings(
        tasks_dir=Path(flags.tasks_dir) if flags.tasks_dir else None,
        system=flags.terminal_system_prompt,
        limits=replace(LIMITS, output_chars=flags.tool_output_chars),
        threads=ThreadPoolExecutor(flags.parallel_envs, thread_name_prefix="terminal"),
    )
