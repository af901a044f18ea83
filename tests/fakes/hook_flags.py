"""The flags that a trainer passes to the hooks of openclaw, without a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from openclaw.store import RolloutStore
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.pipeline import BatchPipeline
from openclaw.types import SampleRecord

TRAINER: dict[str, Any] = {
    "hf_checkpoint": "none",
    "run_dir": "",
    "rollout_batch_size": 2,
    "max_staleness": None,
    "stale_weight": 0.0,
    "echo_coef": 0.0,
    "reward_key": "score",
    "custom_reward_post_process_path": None,
    "teacher_source": None,
    "train_epochs": 1,
    "use_tis": False,
    "use_rollout_logprobs": False,
}
"""The trainer's own flags."""


def hook_flags(location: str | None = None, **changes: object) -> SimpleNamespace:
    """Returns all flags; unnamed flags of the hooks have their defaults."""
    where = {"rl_buffer_url": location if location and "://" in location else None}
    where["rl_buffer_dir"] = None if where["rl_buffer_url"] else location
    return SimpleNamespace(**(TRAINER | where | changes))


def hook_settings(location: str | None = None, **changes: object) -> HookSettings:
    """Returns the same flags as the hooks' settings."""
    return HookSettings.of(hook_flags(location, **changes))


def pipeline_on(store: RolloutStore, args: object) -> BatchPipeline:
    """Returns a pipeline with these flags on an open store, without state of earlier batches."""
    return BatchPipeline(store, HookSettings.of(args))


def rows_of(
    args: object, store: RolloutStore, records: Sequence[SampleRecord], rollout_id: int
) -> list[dict[str, Any]]:
    """Returns the rows of these samples."""
    return pipeline_on(store, args).prepare(records, rollout_id).rows
