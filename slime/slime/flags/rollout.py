"""Flags: rollouts, and the hooks of their samples."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import excludes, flag
from slime.flags.shared import DEFAULT_ROLLOUT, GENERATES_NOTHING

UNBOUNDED = 10**8


@dataclass
class RolloutArguments:
    """Rollout and hooks. Hooks are named package.module.NAME or folder/file.py:NAME."""

    rollout_function_path: str = flag(
        DEFAULT_ROLLOUT,
        "f(args, rollout_id, data_source, evaluation=False) -> RolloutFnTrainOutput: one batch",
        main=True,
    )
    service_path: list[str] = flag(
        [], "start(args, endpoints) -> server processes that slime starts and monitors; repeatable"
    )
    on_weights_live_path: str | None = flag(
        None, "f(args, rollout_id, version, checkpoint), called after every engine confirmed a version"
    )
    num_rollout: int = flag(
        UNBOUNDED, "total number of rollouts; a resumed run counts earlier ones", least=1, main=True
    )
    rollout_batch_size: int = flag(4, "prompts per rollout", least=1, main=True)
    n_samples_per_prompt: int = flag(
        1,
        "samples per prompt, which form a group",
        aliases=("--num-rollouts-per-prompt",),
        least=1,
        main=True,
    )
    reward_key: str | None = flag(None, "name of the reward to train on")
    update_weights_interval: int = flag(
        1,
        "rollouts between weight updates",
        least=1,
        rules=[
            excludes(
                "on_weights_live_path",
                text="{flag} {value} would leave batches uncommitted, because --on-weights-live-path "
                "commits one batch per version; drop one of them",
            )
        ],
    )
    custom_generate_function_path: str | None = flag(
        None,
        "async f(args, sample, sampling_params[, evaluation]) -> Sample or list of samples; "
        "replaces the single request",
        rules=[GENERATES_NOTHING],
    )
    rollout_sample_hook_path: list[str] = flag(
        [],
        "f(args, sample, *, rollout_id, evaluation) -> Sample or None, before the reward; may be repeated",
        rules=[GENERATES_NOTHING],
    )
    group_rm: bool = flag(False, "request rewards for a whole group at once", rules=[GENERATES_NOTHING])
    dynamic_sampling_filter_path: str | None = flag(
        None,
        "f(args, group) -> DynamicFilterOutput or bool: selects finished groups to train on, "
        "such as slime.rollout.filters.check_reward_nonzero_std",
        rules=[GENERATES_NOTHING],
    )
    rollout_sample_filter_path: str | None = flag(
        None,
        "f(args, groups) -> None, sets remove_sample on samples to exclude from training",
        rules=[GENERATES_NOTHING],
    )
    rollout_all_samples_process_path: str | None = flag(
        None,
        "f(args, all_groups, get_samples) -> None, gets every finished group, including dropped ones",
        rules=[GENERATES_NOTHING],
    )
    custom_rollout_log_function_path: str | None = flag(
        None,
        "f(rollout_id, args, samples, extra_metrics, rollout_time) -> bool; True omits slime's own metrics",
    )
    custom_eval_rollout_log_function_path: str | None = flag(
        None, "f(rollout_id, args, data, extra_metrics) -> bool; True omits slime's own metrics"
    )
