"""Flags: hooks between rollout and training that no other group has."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag


@dataclass
class HookArguments:
    """Hooks between rollout and training."""

    custom_reward_post_process_path: str | None = flag(
        None, "f(args, samples) -> (raw rewards, rewards); replaces normalisation in groups"
    )
    custom_convert_samples_to_train_data_path: str | None = flag(
        None, "f(args, samples) -> training data: dict of lists, one entry per sample"
    )
    rollout_data_postprocess_path: str | None = flag(
        None, "f(args, rollout_id, rollout_data), called after log-probs and advantages; may change them"
    )
    custom_update_weight_post_write_path: str | None = flag(
        None,
        "f(args, version_dir, rollout_engines), called between writing and loading a weight version",
    )
