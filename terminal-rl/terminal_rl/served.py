"""Terminals over HTTP: `python -m slime.pool --environment terminal_rl.served:environment --tasks DIR`."""

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
    """One environment of the tasks in DATASET_DIR, of which PARALLEL_ENVS work at a time. Raises ConfigError."""
    return TerminalEnvironment(_settings())
