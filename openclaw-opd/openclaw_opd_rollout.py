"""Alias module: the names of the rollout functions in launch scripts."""

from openclaw.trainer_hooks.lease import generate_rollout as generate_rollout_openclaw_opd
from openclaw.trainer_hooks.lease import on_weights_live

__all__ = ["generate_rollout_openclaw_opd", "on_weights_live"]
