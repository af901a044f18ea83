"""Serves terminals over HTTP: `python -m slime.pool --environment terminal_rl.served:environment --tasks DIR`."""

from __future__ import annotations

import functools
import os

from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.generate import TerminalFlags, settings_of


@functools.cache
def _settings() -> TerminalSettings:
    places = int(os.environ.get("PARALLEL_ENVS", "64"))
    return settings_of(TerminalFlags(parallel_envs=places, tasks_dir=os.environ.get("DATASET_DIR")))


def environment() -> TerminalEnvironment:
    """Returns an environment for the tasks in DATASET_DIR; PARALLEL_ENVS of them run concurrently. Raises
    ConfigError."""
    return TerminalEnvironment(_settings())
