"""Refuses arguments that cannot work, in one line, before anything starts; derives what others imply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.settings.declare import option
from claw_base.settings.rules import check_flags
from slime.arguments.rules.algorithm import (
    check_algorithm,
    check_lora,
    resolve_custom_loss,
    switch_adapters,
)
from slime.arguments.rules.engine import check_engine
from slime.arguments.rules.optimizer import check_optimizer
from slime.arguments.rules.parallel import check_parallel
from slime.arguments.rules.recompute import check_recompute
from slime.arguments.rules.rented import check_rented, prepare_rented
from slime.arguments.rules.rollout import check_judge, check_reward, check_rollout, resolve_epochs
from slime.arguments.rules.run import check_run
from slime.errors import ConfigError
from slime.hooks import HOOKS, load_hooks
from slime.weights.checkpoints import is_torch_dist

if TYPE_CHECKING:
    from slime.flags import Arguments


def validate(args: Arguments) -> None:
    """Checks `args` and fills in derived values, in place.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    check_run(args)
    switch_adapters(args)
    resolve_custom_loss(args)
    check_flags(args)
    prepare_rented(args)
    _check_model(args)
    check_engine(args)
    check_rollout(args)
    resolve_epochs(args)
    _resolve_batches(args)
    check_algorithm(args)
    check_lora(args)
    check_rented(args)
    check_parallel(args)
    check_recompute(args)
    check_reward(args)
    check_judge(args)
    check_optimizer(args)
    _check_hooks(args)
    args.ref_load = args.ref_load or args.hf_checkpoint
    args.run_dir = str(Path(args.run_dir).expanduser().resolve())
    args.save = str(Path(args.save or f"{args.run_dir}/checkpoints").expanduser().resolve())
    versions = Path(args.update_weight_disk_dir or f"{args.save}/weights")
    args.update_weight_disk_dir = str(versions.expanduser().resolve())
    args.tensorboard_dir = args.tensorboard_dir or f"{args.run_dir}/tensorboard"


def _check_model(args: Arguments) -> None:
    if not args.hf_checkpoint:
        raise ConfigError("no model: give --hf-checkpoint FOLDER (or HF_CKPT)")
    for name in ("hf_checkpoint", "ref_load", "load", "save"):
        folder = vars(args)[name]
        if folder and is_torch_dist(Path(folder).expanduser()):
            raise ConfigError(
                f"{option(name)} {folder} is a checkpoint of Megatron-LM (torch_dist); make a Hugging Face folder of it: "
                "python slime/tools/convert_torch_dist_to_hf.py --help"
            )
    args.hf_checkpoint = str(Path(args.hf_checkpoint).expanduser().resolve())
    _require_model_folder("--hf-checkpoint", args.hf_checkpoint)
    if args.ref_load:
        args.ref_load = str(Path(args.ref_load).expanduser().resolve())
        _require_model_folder("--ref-load", args.ref_load)
    if args.load is not None and not Path(args.load).is_dir():
        raise ConfigError(f"--load {args.load} is not a folder; drop it to start from --hf-checkpoint")


def _require_model_folder(name: str, folder: str) -> None:
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"{name} {folder} holds no config.json; give the folder of a Hugging Face model")


def _resolve_batches(args: Arguments) -> None:
    samples = args.rollout_batch_size * args.n_samples_per_prompt
    if args.num_steps_per_rollout is not None:
        size, rest = divmod(samples, args.num_steps_per_rollout)
        if rest or not size:
            raise ConfigError(
                f"{samples} samples a rollout (--rollout-batch-size x --n-samples-per-prompt) "
                f"do not divide into --num-steps-per-rollout {args.num_steps_per_rollout}"
            )
        if args.global_batch_size not in (None, size):
            raise ConfigError(
                f"--num-steps-per-rollout {args.num_steps_per_rollout} makes steps of {size} samples, "
                f"--global-batch-size says {args.global_batch_size}; drop one of them"
            )
        args.global_batch_size = size
    if args.global_batch_size is None:
        args.global_batch_size = samples
    if args.global_batch_size > samples:
        raise ConfigError(
            f"--global-batch-size {args.global_batch_size} is more than the {samples} samples of a rollout "
            "(--rollout-batch-size x --n-samples-per-prompt)"
        )
    if args.micro_batch_size is None:
        args.micro_batch_size = None if args.use_dynamic_batch_size else 1


def _check_hooks(args: Arguments) -> None:
    for name in HOOKS:
        load_hooks(args, name)
