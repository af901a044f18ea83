"""A pool beside a run: `--service-path slime.agents.pool.hook.start --environment-path file.py:Class`. slime starts it,
asks for its health and starts it again where it dies."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Protocol

from slime.agents.pool.__main__ import POOL_PORT, app_of, parser


class PoolFlags(Protocol):
    """The flags that `add_arguments` adds."""

    environment_path: str
    environment_port: int
    parallel_envs: int


def add_arguments(flags: argparse.ArgumentParser) -> None:
    """Adds the pool's flags to the run's."""
    group = flags.add_argument_group("environment pool", "Environments of agents, in a process of their own.")
    group.add_argument("--environment-path", required=True, help="class without arguments: file.py:Class")
    group.add_argument("--environment-port", type=int, default=POOL_PORT, help="on the loopback address")
    group.add_argument("--parallel-envs", type=int, default=64, help="environments at a time")


def start(args: PoolFlags, endpoints: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The pool as a server for slime to start. Raises ConfigError: there is no such environment, or it cannot be made."""
    words = ["--environment", args.environment_path, "--port", str(args.environment_port)]
    for limit in ("--max-runs", "--max-tasks", "--max-runs-per-task"):
        words += [limit, str(args.parallel_envs)]
    app_of(parser().parse_args(words))
    return [
        {
            "name": "environments",
            "role": "environments",
            "command": [sys.executable, "-m", "slime.agents.pool", *words],
            "url": f"http://127.0.0.1:{args.environment_port}",
            "health_path": "/healthz",
        }
    ]
