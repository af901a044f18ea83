"""Rejects prompts, sampling and evaluation flags that cannot work; derives others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.flags.rollout import UNBOUNDED
from slime.flags.shared import FINE_TUNING, GENERATING, SOURCES

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.data import DataArguments
    from slime.flags.reward import RewardArguments

LEAST_DROP_LIMIT = 100


def check_rollout(args: Arguments) -> None:
    """Checks the source of samples.

    Raises:
        ConfigError: names the contradiction and the remedy.
    """
    _check_prompts(args)
    _check_lengths(args)
    _check_batches(args)
    check_evaluation(args)


def resolve_epochs(args: Arguments) -> None:
    """Converts --num-epoch to --num-rollout: full batches for that many passes over the prompts."""
    if args.num_epoch is None:
        return
    if args.num_rollout != UNBOUNDED:
        return
    from slime.rollout.data_source import RolloutDataSource

    args.num_rollout = args.num_epoch * RolloutDataSource(args).rollouts_per_epoch()


def _check_prompts(args: Arguments) -> None:
    own_source = args.data_source_path not in SOURCES
    if args.load_debug_rollout_data:
        return  # samples come from recorded files
    if args.disable_rollout_global_dataset:
        if args.rollout_function_path in (*GENERATING, FINE_TUNING) and not own_source:
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


def _check_lengths(args: DataArguments) -> None:
    if args.rollout_max_context_len is None:
        return
    longest = args.rollout_max_context_len - 1
    if args.rollout_max_prompt_len is None:
        args.rollout_max_prompt_len = longest
    if args.rollout_max_prompt_len > longest:
        raise ConfigError(
            f"--rollout-max-prompt-len {args.rollout_max_prompt_len} leaves no room for an answer in "
            f"--rollout-max-context-len {args.rollout_max_context_len}"
        )


def _check_batches(args: Arguments) -> None:
    if args.over_sampling_batch_size is None:
        args.over_sampling_batch_size = args.rollout_batch_size
    if args.over_sampling_batch_size < args.rollout_batch_size:
        raise ConfigError(
            f"--over-sampling-batch-size {args.over_sampling_batch_size} is less than --rollout-batch-size "
            f"{args.rollout_batch_size}"
        )
    if args.rollout_drop_limit is None:
        args.rollout_drop_limit = max(LEAST_DROP_LIMIT, 20 * args.rollout_batch_size)


def check_evaluation(args: Arguments) -> None:
    """Checks the flags of evaluation; reads --eval-config, not the data sets.

    Raises:
        ConfigError: a part that is missing or wrong.
    """
    from slime.rollout.eval_datasets import eval_datasets

    datasets = eval_datasets(args)
    if args.eval_interval is not None and not datasets and not args.eval_function_path:
        raise ConfigError("--eval-interval needs --eval-prompt-data, --eval-config or --eval-function-path")
    if datasets and args.group_rm:
        raise ConfigError(
            "--group-rm rewards whole groups, which evaluation does not have; drop it or the evaluation data"
        )


def check_judge(args: Arguments) -> None:
    """Rejects judging of agents' steps without a judge. Raises ConfigError."""
    if args.prm_enable and not (args.prm_num_gpus or args.prm_router_ip or args.prm_url):
        raise ConfigError(
            "--prm-enable has no judge: give --prm-num-gpus for engines of this run, --prm-router-ip and "
            "--prm-router-port for one that runs elsewhere, or --prm-url and --prm-model for an API"
        )


def check_reward(args: RewardArguments) -> None:
    """Rejects an unknown built-in reward, or one without its address. Raises ConfigError."""
    from slime.rollout.rm_hub import check_rm_type  # the graders' libraries are imported only when needed

    if args.rm_type:
        check_rm_type(args.rm_type, args.rm_url)
