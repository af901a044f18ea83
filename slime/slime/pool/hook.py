"""A pool started with a training run, and an agent that uses it:

--service-path slime.pool.hook.start --custom-generate-function-path slime.pool.hook.generate
--environment-path file.py:Class --reward-key score

slime starts the pool, checks its health and restarts it if it dies.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from claw_base.settings.command_line import as_flags
from claw_base.settings.declare import flag, read
from slime.agents.episode import EpisodeLimits
from slime.agents.generate import Generate, agent
from slime.errors import ConfigError
from slime.pool.__main__ import POOL_PORT, PoolSettings, app_of
from slime.pool.client import PoolEnvironment
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

SERVED = "{}_rl.served:environment"
"""The environment that a track provides for pools, by its name in ENV_TYPE."""


@dataclass(frozen=True)
class PoolFlags:
    """environment pool: environments of agents in a separate process."""

    environment_path: str = flag(
        "",
        "environment class, file.py:Class, or the name of a track, such as terminal",
        env=("ENVIRONMENT_PATH", "ENV_TYPE"),
    )
    environment_port: int = flag(POOL_PORT, "port of the pool, on the loopback address", least=1, most=65535)
    parallel_envs: int = flag(
        64, "concurrent environments and episodes", env=("PARALLEL_ENVS",), yields=True, least=1
    )
    max_steps: int = flag(16, "turns of the model in one episode", env=("MAX_STEPS",), yields=True, least=1)


FLAGS: tuple[type, ...] = (PoolFlags,)


def check_arguments(args: object, endpoints: object = None, env: object = None) -> None:
    """Raises ConfigError if no environment is given; called for a dry run too."""
    if not read(PoolFlags, args).environment_path:
        raise ConfigError("a pool needs --environment-path (or ENV_TYPE), the class of its environments")


def start(args: GenerationSide, endpoints: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Returns the pool as a server that slime starts. Raises ConfigError if there is no such environment, or it
    cannot be created."""
    check_arguments(args)
    flags = read(PoolFlags, args)
    parallel = flags.parallel_envs
    settings: dict[str, Any] = {"max_runs": parallel, "max_tasks": parallel, "max_runs_per_task": parallel}
    settings |= {"environment": path_of(flags.environment_path), "port": flags.environment_port}
    app_of(PoolSettings(**settings))
    return [
        {
            "name": "environments",
            "role": "environments",
            "command": [sys.executable, "-m", "slime.pool", *as_flags(PoolSettings, settings)],
            "url": _url(flags),
            "health_path": "/healthz",
        }
    ]


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """Runs one episode in the pool of `start`."""
    return await _agent(read(PoolFlags, args))(args, sample, sampling_params, evaluation)


@functools.cache
def _agent(flags: PoolFlags) -> Generate:
    limits = EpisodeLimits(turns=flags.max_steps)
    return agent(lambda: PoolEnvironment(_url(flags)), limits, parallel=flags.parallel_envs)


def path_of(name: str) -> str:
    """Returns the path of an environment: unchanged, or for a track's name that of the track's environment."""
    return name if any(mark in name for mark in ".:/") else SERVED.format(name)


def _url(flags: PoolFlags) -> str:
    return f"http://127.0.0.1:{flags.environment_port}"
