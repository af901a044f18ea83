"""Refuses prompts, sampling and evaluation flags that cannot work; derives what others imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.arguments.declare import option
from slime.arguments.groups.rollout import UNBOUNDED
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

DEFAULT_ROLLOUT = "slime.rollout.sglang_rollout.generate_rollout"
NEEDS_PROMPTS = (
    DEFAULT_ROLLOUT,
    "slime.rollout.fully_async_rollout.generate_rollout_fully_async",
    "slime.rollout.sft_rollout.generate_rollout",
)
DEFAULT_SOURCES = (
    "slime.rollout.data_source.RolloutDataSource",
    "slime.rollout.data_source.RolloutDataSourceWithBuffer",
)
ABOVE_ZERO = ("rollout_sample_timeout", "rollout_reward_timeout", "rollout_stall_timeout")
LEAST_DROP_LIMIT = 100


def check_rollout(args: Arguments) -> None:
    """Checks where samples come from.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    _check_prompts(args)
    _check_sampling(args)
    _check_batches(args)
    check_evaluation(args)


def resolve_epochs(args: Arguments) -> None:
    """Turns --num-epoch into --num-rollout: full batches of as many passes over the prompts."""
    if args.num_epoch is None:
        return
    if args.num_epoch < 1:
        raise ConfigError(f"--num-epoch must be 1 or more, got {args.num_epoch}")
    if args.disable_rollout_global_dataset or args.data_source_path not in DEFAULT_SOURCES:
        raise ConfigError("--num-epoch counts passes over --prompt-data; give --num-rollout instead")
    if args.num_rollout != UNBOUNDED:
        return
    from slime.rollout.data_source import RolloutDataSource

    args.num_rollout = args.num_epoch * RolloutDataSource(args).rollouts_per_epoch()


def _check_prompts(args: Arguments) -> None:
    own_source = args.data_source_path not in DEFAULT_SOURCES
    if args.load_debug_rollout_data:
        return  # samples come from files
    if args.disable_rollout_global_dataset:
        if args.prompt_data:
            raise ConfigError(
                "--prompt-data is not read with --disable-rollout-global-dataset; drop one of them"
            )
        if args.rollout_function_path in NEEDS_PROMPTS and not own_source:
            raise ConfigError(
                "no source of samples: --disable-rollout-global-dataset needs a --rollout-function-path with its "
                "own source"
            )
        return
    if not args.prompt_data and not own_source:
        raise ConfigError(
            "no source of samples: give --prompt-data FILE, or a --rollout-function-path that has its own source "
            "with --disable-rollout-global-dataset"
        )
    if args.prompt_data and not own_source:
        from slime.rollout.dataset import training_spec
        from slime.rollout.prompts import PromptFile

        PromptFile.parse(training_spec(args).source)
    if args.rollout_function_path == NEEDS_PROMPTS[2] and args.apply_chat_template:
        raise ConfigError("supervised fine-tuning renders conversations itself; drop --apply-chat-template")


def _check_sampling(args: Arguments) -> None:
    if not args.rollout_temperature > 0:
        raise ConfigError(
            f"--rollout-temperature must be above 0 for answers to be trained on, got {args.rollout_temperature}"
        )
    if not 0 < args.rollout_top_p <= 1:
        raise ConfigError(f"--rollout-top-p must be above 0 and at most 1, got {args.rollout_top_p}")
    if args.rollout_top_k < 1 and args.rollout_top_k != -1:
        raise ConfigError(f"--rollout-top-k must be 1 or more, or -1 for all, got {args.rollout_top_k}")
    for name in ("rollout_max_response_len", "sglang_server_concurrency", "rollout_max_attempts"):
        if getattr(args, name) < 1:
            raise ConfigError(f"{option(name)} must be 1 or more, got {getattr(args, name)}")
    for name in ABOVE_ZERO:
        if not getattr(args, name) > 0:
            raise ConfigError(f"{option(name)} is a number of seconds above 0, got {getattr(args, name)}")
    if args.rollout_max_context_len is not None:
        if args.rollout_max_context_len < 2:
            raise ConfigError(
                f"--rollout-max-context-len must be 2 or more, got {args.rollout_max_context_len}"
            )
        longest = args.rollout_max_context_len - 1
        if args.rollout_max_prompt_len is None:
            args.rollout_max_prompt_len = longest
        if args.rollout_max_prompt_len > longest:
            raise ConfigError(
                f"--rollout-max-prompt-len {args.rollout_max_prompt_len} leaves no room for an answer in "
                f"--rollout-max-context-len {args.rollout_max_context_len}"
            )
    if args.rollout_max_prompt_len is not None and args.rollout_max_prompt_len < 1:
        raise ConfigError(f"--rollout-max-prompt-len must be 1 or more, got {args.rollout_max_prompt_len}")


def _check_batches(args: Arguments) -> None:
    if args.over_sampling_batch_size is None:
        args.over_sampling_batch_size = args.rollout_batch_size
    if args.over_sampling_batch_size < args.rollout_batch_size:
        raise ConfigError(
            f"--over-sampling-batch-size {args.over_sampling_batch_size} is less than --rollout-batch-size "
            f"{args.rollout_batch_size}"
        )
    if args.mask_offpolicy_in_partial_rollout and not args.partial_rollout:
        raise ConfigError("--mask-offpolicy-in-partial-rollout needs --partial-rollout")
    if args.rollout_drop_limit is None:
        args.rollout_drop_limit = max(LEAST_DROP_LIMIT, 20 * args.rollout_batch_size)
    if args.rollout_drop_limit < 1:
        raise ConfigError(f"--rollout-drop-limit must be 1 or more, got {args.rollout_drop_limit}")


def check_evaluation(args: Arguments) -> None:
    """Checks the flags of evaluation; reads --eval-config, not the data sets.

    Raises:
        ConfigError: what is missing or wrong.
    """
    from slime.rollout.eval_datasets import eval_datasets

    for name in ("eval_interval", "n_samples_per_eval_prompt"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"{option(name)} must be 1 or more, got {value}")
    datasets = eval_datasets(args)
    if args.eval_interval is not None and not datasets and not args.eval_function_path:
        raise ConfigError("--eval-interval needs --eval-prompt-data, --eval-config or --eval-function-path")
    tunes = args.rollout_function_path == NEEDS_PROMPTS[2]
    if args.eval_interval is not None and tunes and not args.eval_function_path:
        raise ConfigError(
            f"supervised fine-tuning generates nothing to evaluate; give --eval-function-path {DEFAULT_ROLLOUT}"
        )
    if datasets and args.group_rm:
        raise ConfigError("rewards of a whole group (--group-rm) are for training; evaluate without them")
