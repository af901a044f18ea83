"""The errors of the trainer, one for each boundary. A message names the fault, its place, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable

from claw_base.errors import ClawError, ConfigError

__all__ = [
    "CheckpointError",
    "ClawError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "EngineError",
    "EnvironmentAway",
    "RewardError",
    "SandboxError",
    "TrainError",
    "unknown_name",
]


class ClusterError(ConfigError):
    """The cluster lacks something that the run needs: Ray, GPUs or a machine. It may become available later."""


class DataError(ClawError):
    """A sample with inconsistent parts."""


class TrainError(ClawError):
    """A training step or checkpoint failed; nothing of it was applied."""


class CheckpointError(TrainError):
    """A checkpoint does not fit this run or is missing; a retry would not help."""


class EngineError(ClawError):
    """An inference engine is unreachable, rejects a request, or holds the wrong weights."""


class RewardError(ClawError):
    """A reward function hung, raised or returned no finite number; it affects its sample, not the run."""


class EnvironmentAway(ClawError):
    """An environment is unreachable or broke without the agent's fault: it is tried again, and never counts as a
    failed task."""


class SandboxError(EnvironmentAway):
    """A sandbox failed to start, not because of the code in it."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> ConfigError:
    """Returns the error for an unknown name; a name is never replaced by a similar one."""
    return ConfigError(f"there is no {what} {name!r}; known: {', '.join(known)}")
