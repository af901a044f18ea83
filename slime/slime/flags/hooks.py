"""Flags: hooks between rollout and training that no other group has."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag


@dataclass
class HookArguments:
    """Hooks between rollout and training."""

    custom_reward_post_process_path: str | None = flag(
        None, "f(args, samples) -> (raw rewards, rewards), in place of the normalisation of rewards in groups"
    )
    custom_convert_samples_to_train_data_path: str | None = flag(
        None, "f(args, samples) -> dict of lists, one entry a sample: training data"
    )
    rollout_data_postprocess_path: str | None = flag(
        None, "f(args, rollout_id, rollout_data), after log-probs and advantages, which it may change"
    )
    custom_update_weight_post_write_path: str | None = flag(
        None,
        "f(args, version_dir, rollout_engines), after a weight version is written, before engines load it",
    )
