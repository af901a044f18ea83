"""Alias module: the names of the rollout functions in launch scripts."""

from openclaw.trainer_hooks.lease import generate_rollout as generate_rollout_openclaw_combine
from openclaw.trainer_hooks.lease import on_weights_live

__all__ = ["generate_rollout_openclaw_combine", "on_weights_live"]
