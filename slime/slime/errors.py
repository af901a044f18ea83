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
    """The cluster lacks what the run needs: no Ray there, GPUs or a machine missing. They may come back."""


class DataError(ClawError):
    """A sample whose parts contradict each other."""


class TrainError(ClawError):
    """A training step or checkpoint that cannot be used; nothing of it was applied."""


class CheckpointError(TrainError):
    """A checkpoint that does not fit this run or is not there; trying again would not help."""


class EngineError(ClawError):
    """An inference engine that is away, refuses, or holds other weights than it should."""


class RewardError(ClawError):
    """A reward that hung, raised or is no finite number; it costs its sample, not the run."""


class EnvironmentAway(ClawError):
    """An environment that cannot be reached or broke by no fault of the agent: tried again, never a failed task."""


class SandboxError(EnvironmentAway):
    """A sandbox that did not start by no fault of the code in it."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> ConfigError:
    """Returns the error for an unknown name; a name is never replaced by a similar one."""
    return ConfigError(f"there is no {what} {name!r}; known: {', '.join(known)}")
