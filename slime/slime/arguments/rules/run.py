"""Refuses ways to run that contradict each other; derives what colocation and replay imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claw_base.settings.declare import option
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.flags import Arguments

REPLAY = "slime.replay.replay"
PLACEHOLDER = "{rollout_id}"


def check_run(args: Arguments) -> None:
    """Checks and completes the flags of `slime.flags.run`, in place. Raises ConfigError."""
    if args.profile and args.profile_step_end <= args.profile_step_start:
        raise ConfigError("--profile-step-end must be above --profile-step-start")
    _check_replay(args)
    _check_turns(args)


def _check_replay(args: Arguments) -> None:
    for name in ("save_debug_rollout_data", "load_debug_rollout_data"):
        path = vars(args)[name]
        if path is not None and PLACEHOLDER not in path:
            raise ConfigError(
                f"{option(name)} {path} needs {PLACEHOLDER} where the number of the rollout goes"
            )
    if args.load_debug_rollout_data is not None:
        args.debug_train_only = True
        args.rollout_function_path = REPLAY
        args.disable_rollout_global_dataset = True


def _check_turns(args: Arguments) -> None:
    """Who shares which processors, and who steps aside."""
    on_gpu = args.actor_num_gpus_per_node > 0
    if args.colocate and on_gpu != (args.rollout_num_gpus > 0):
        raise ConfigError(
            "--colocate shares the trainers' GPUs (or processors) with the engines: set both of "
            "--actor-num-gpus-per-node and --rollout-num-gpus, or neither"
        )
    if args.offload_train is None:
        args.offload_train = args.colocate and on_gpu and args.train_backend != "megatron"  # which cannot
    if args.offload_train and not on_gpu:
        raise ConfigError("--offload-train moves trainers from GPUs to CPU memory; these train on the CPU")
    if args.offload_rollout is None:
        args.offload_rollout = args.colocate
    if (args.offload_rollout or args.offload_train) and not args.colocate:
        raise ConfigError(
            "--offload-rollout and --offload-train need --colocate: otherwise engines serve while trainers work"
        )
