"""Refuses flags that would change nothing because of others, or because others are missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slime.arguments.declare import option
from slime.arguments.rules.rollout import DEFAULT_SOURCES, NEEDS_PROMPTS
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

SFT = NEEDS_PROMPTS[2]
OF_GENERATION: dict[str, Any] = {
    "rm_type": None,
    "custom_rm_path": None,
    "group_rm": False,
    "custom_generate_function_path": None,
    "rollout_sample_hook_path": [],
    "dynamic_sampling_filter_path": None,
    "rollout_sample_filter_path": None,
    "rollout_all_samples_process_path": None,
    "partial_rollout": False,
    "rollout_stop": [],
    "rollout_stop_token_ids": [],
}
WANDB = ("mode", "project", "team", "group", "run_id", "dir")
EVALUATION: dict[str, Any] = {"eval_prompt_data": [], "eval_config": None, "eval_function_path": None}


def check_effect(args: Arguments) -> None:
    """Raises ConfigError for the first flag that is given and would be read by nothing."""
    for name, default, reason in _without_effect(args):
        if getattr(args, name) != default:
            raise ConfigError(f"{option(name)} would change nothing: {reason}")


def _without_effect(args: Arguments) -> Iterator[tuple[str, Any, str]]:
    """(flag, what it is when nobody gave it, why nothing reads it)."""
    if args.rollout_function_path == SFT:
        for name, default in OF_GENERATION.items():
            yield name, default, "supervised fine-tuning generates nothing and asks for no rewards; drop it"
    elif args.rollout_function_path in NEEDS_PROMPTS:
        yield "loss_mask_type", "qwen", f"it is for --rollout-function-path {SFT}; drop it"
        if not args.apply_chat_template:
            yield "apply_chat_template_kwargs", "{}", "it needs --apply-chat-template"
    if args.data_source_path in DEFAULT_SOURCES[:1] or args.disable_rollout_global_dataset:
        yield "buffer_filter_path", None, f"it is read by {DEFAULT_SOURCES[1]}; drop it"
    if not args.load_debug_rollout_data:
        yield "load_debug_rollout_data_subsample", 1.0, "it needs --load-debug-rollout-data"
    if args.update_weight_transport == "disk":
        yield "update_weight_buffer_size", 512 * 1024**2, "it needs --update-weight-transport nccl"
    if not args.profile:
        yield "profile_step_start", 1, "it needs --profile"
        yield "profile_step_end", 2, "it needs --profile"
    if not args.use_wandb:
        for name in WANDB:
            yield f"wandb_{name}", None, "it needs --use-wandb"
        yield "wandb_always_use_train_step", False, "it needs --use-wandb"
    if args.eval_interval is None:
        for name, default in EVALUATION.items():
            yield name, default, "it is looked at every --eval-interval rollouts; give that too"
    elif args.debug_train_only and not args.eval_function_path:
        yield "eval_interval", None, "--debug-train-only starts no engine to evaluate; drop one of them"
