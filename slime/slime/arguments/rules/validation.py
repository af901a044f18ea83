"""Rejects invalid arguments with a one-line message before anything starts, and derives others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.settings.declare import option
from claw_base.settings.rules import check_flags
from slime.arguments.rules.distillation import check_distillation, spec_of
from slime.arguments.rules.engine import check_engine
from slime.arguments.rules.parallel import check_parallel
from slime.arguments.rules.rented import check_rented, prepare_rented
from slime.arguments.rules.rollout import check_judge, check_reward, check_rollout, resolve_epochs
from slime.errors import ConfigError
from slime.flags.lora import DEFAULT_ALPHA, DEFAULT_RANK
from slime.flags.optimizer import WITH_END
from slime.flags.rollout import UNBOUNDED
from slime.hooks import HOOKS, load_hooks
from slime.weights.checkpoints import is_torch_dist

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.parallel import ParallelArguments


def validate(args: Arguments) -> None:
    """Validates `args` and fills in derived values, in place.

    Raises:
        ConfigError: the message names the contradiction and the remedy.
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
        raise ConfigError("no model: set --hf-checkpoint FOLDER (or HF_CKPT)")
    for name in ("hf_checkpoint", "ref_load", "load", "save"):
        folder = vars(args)[name]
        if folder and is_torch_dist(Path(folder).expanduser()):
            raise ConfigError(
                f"{option(name)} {folder} is a checkpoint of Megatron-LM (torch_dist); convert it to "
                "a Hugging Face folder: python slime/tools/convert_torch_dist_to_hf.py --help"
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
        raise ConfigError(
            f"{name} {folder} contains no config.json; set it to the folder of a Hugging Face model"
        )


def _resolve_batches(args: Arguments) -> None:
    samples = args.rollout_batch_size * args.n_samples_per_prompt
    if args.num_steps_per_rollout is not None:
        size, rest = divmod(samples, args.num_steps_per_rollout)
        if rest or not size:
            raise ConfigError(
                f"{samples} samples per rollout (--rollout-batch-size x --n-samples-per-prompt) "
                f"are not divisible by --num-steps-per-rollout {args.num_steps_per_rollout}"
            )
        if args.global_batch_size not in (None, size):
            raise ConfigError(
                f"--num-steps-per-rollout {args.num_steps_per_rollout} makes steps of {size} samples, "
                f"but --global-batch-size is {args.global_batch_size}; drop one of them"
            )
        args.global_batch_size = size
    if args.global_batch_size is None:
        args.global_batch_size = samples
    if args.global_batch_size > samples:
        raise ConfigError(
            f"--global-batch-size {args.global_batch_size} exceeds the {samples} samples of a "
            "rollout (--rollout-batch-size x --n-samples-per-prompt)"
        )
    if args.micro_batch_size is None:
        args.micro_batch_size = None if args.use_dynamic_batch_size else 1


def _check_hooks(args: Arguments) -> None:
    for name in HOOKS:
        load_hooks(args, name)


def check_optimizer(args: Arguments) -> None:
    """Checks the optimizer and fills in `lr_decay_iters`, `lr_warmup_iters` and `lr_wsd_decay_iters`.

    Raises:
        ConfigError: names the contradiction and the remedy.
    """
    if args.min_lr > args.lr:
        raise ConfigError(f"--min-lr {args.min_lr} is above --lr {args.lr}")
    if args.lr_decay_style in WITH_END or args.lr_warmup_fraction is not None:
        _resolve_end(args)
    _resolve_warmup(args)
    if args.lr_decay_style == "WSD":
        _resolve_stable(args)


def _resolve_end(args: Arguments) -> None:
    if args.lr_decay_iters is None:
        if args.num_rollout is None or args.num_rollout == UNBOUNDED:
            flag = "--lr-warmup-fraction" if args.lr_warmup_fraction is not None else "--lr-decay-style"
            raise ConfigError(f"{flag} needs an end: set --lr-decay-iters or --num-rollout")
        assert args.global_batch_size is not None
        samples = args.rollout_batch_size * args.n_samples_per_prompt
        args.lr_decay_iters = args.num_rollout * args.train_epochs * -(-samples // args.global_batch_size)


def _resolve_warmup(args: Arguments) -> None:
    source = f"--lr-warmup-iters {args.lr_warmup_iters}"
    if args.lr_warmup_fraction is not None:
        assert args.lr_decay_iters is not None
        source = f"--lr-warmup-fraction {args.lr_warmup_fraction:g}"
        args.lr_warmup_iters = round(args.lr_warmup_fraction * args.lr_decay_iters)
        args.lr_warmup_fraction = None
    if args.lr_decay_style in WITH_END and (args.lr_decay_iters or 0) <= args.lr_warmup_iters:
        raise ConfigError(
            f"{source} leaves no steps for the decay, which ends after {args.lr_decay_iters or 0} steps"
        )


def _resolve_stable(args: Arguments) -> None:
    assert args.lr_decay_iters is not None
    if args.lr_wsd_decay_iters is None:
        args.lr_wsd_decay_iters = max(1, args.lr_decay_iters // 10)
    room = args.lr_decay_iters - args.lr_warmup_iters
    if not 1 <= args.lr_wsd_decay_iters <= room:
        raise ConfigError(f"--lr-wsd-decay-iters must be from 1 to {room}, got {args.lr_wsd_decay_iters}")


MODULES = ("core_attn", "mlp")
EVERY_LAYER = ("full", "uniform", 1)


def check_recompute(args: Arguments) -> None:
    """Checks the flags and fills in `recompute_modules`; both backends accept Megatron-LM's options for every layer.

    Raises:
        ConfigError: names the contradiction and the remedy.
    """
    if args.recompute_granularity == "selective":
        _choose_modules(args)
    asked = (args.recompute_granularity, args.recompute_method, args.recompute_num_layers)
    if asked == EVERY_LAYER:
        args.gradient_checkpointing = True
        if args.train_backend != "megatron":
            args.recompute_granularity = args.recompute_method = args.recompute_num_layers = None
    elif args.recompute_granularity is not None:
        if args.train_backend != "megatron":
            raise ConfigError(
                "--recompute-granularity: --train-backend fsdp recomputes every layer or none; use "
                "--gradient-checkpointing"
            )
        if args.gradient_checkpointing:
            raise ConfigError(
                "--gradient-checkpointing recomputes every layer; drop it or --recompute-granularity"
            )


def _choose_modules(args: ParallelArguments) -> None:
    args.recompute_modules = args.recompute_modules or MODULES[0]
    for name in args.recompute_modules.split(","):
        if name not in MODULES:
            raise ConfigError(f"--recompute-modules {name}: must be one of {', '.join(MODULES)}")


REPLAY = "slime.replay.replay"
PLACEHOLDER = "{rollout_id}"


def check_run(args: Arguments) -> None:
    """Checks and completes the flags of `slime.flags.run`, in place. Raises ConfigError."""
    if not str(args.run_dir).strip():
        raise ConfigError("--run-dir is empty: set a folder, or drop it")
    if args.profile and args.profile_step_end <= args.profile_step_start:
        raise ConfigError("--profile-step-end must be above --profile-step-start")
    _check_replay(args)
    _check_turns(args)


def _check_replay(args: Arguments) -> None:
    for name in ("save_debug_rollout_data", "load_debug_rollout_data"):
        path = vars(args)[name]
        if path is not None and PLACEHOLDER not in path:
            raise ConfigError(f"{option(name)} {path} must contain {PLACEHOLDER} for the rollout number")
    if args.load_debug_rollout_data is not None:
        args.debug_train_only = True
        args.rollout_function_path = REPLAY
        args.disable_rollout_global_dataset = True


def _check_turns(args: Arguments) -> None:
    """Checks which parts share processors, and which part releases them."""
    on_gpu = args.actor_num_gpus_per_node > 0
    if args.colocate and on_gpu != (args.rollout_num_gpus > 0):
        raise ConfigError(
            "--colocate shares the trainers' GPUs (or processors) with the engines: set both or "
            "neither of --actor-num-gpus-per-node and --rollout-num-gpus"
        )
    if args.offload_train is None:
        args.offload_train = (
            args.colocate and on_gpu and args.train_backend != "megatron"
        )  # Megatron does not support this
    if args.offload_train and not on_gpu:
        raise ConfigError(
            "--offload-train moves trainers from GPUs to CPU memory, but this run trains on the CPU"
        )
    if args.offload_rollout is None:
        args.offload_rollout = args.colocate
    if (args.offload_rollout or args.offload_train) and not args.colocate:
        raise ConfigError(
            "--offload-rollout and --offload-train need --colocate; without it, engines serve "
            "while trainers work"
        )


BY_GROUP = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
WHITENED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
LORA = (
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "lora_target_modules",
    "lora_modules_to_save",
    "train_adapters",
)


def check_algorithm(args: Arguments) -> None:
    """Checks loss and advantages.

    Raises:
        ConfigError: names the contradiction and the remedy.
    """
    check_distillation(args)
    if args.loss_type != "sft_loss":
        _check_estimator(args)
        if args.tis_clip_low > args.tis_clip:
            raise ConfigError(f"--tis-clip-low {args.tis_clip_low} is above --tis-clip {args.tis_clip}")


def resolve_custom_loss(args: Arguments) -> None:
    """Treats a plain function as a custom loss, and a function that returns a `LossSpec` like
    --loss-spec-path."""
    path = args.custom_loss_function_path
    if args.loss_type == "sft_loss" or not (path or args.loss_spec_path):
        return
    args.loss_type = "custom_loss"
    if not path:
        return
    # both import torch, like the custom loss
    from slime.losses import load_custom_loss
    from slime.training.core.objective import own_spec

    if load_custom_loss(path)[1] == "spec":
        args.loss_spec_path, args.custom_loss_function_path = path, None
        if not own_spec(args).needs_advantages:
            args.disable_compute_advantages_and_returns = False
    elif args.loss_spec_path:
        raise ConfigError(
            "--custom-loss-function-path and --loss-spec-path both set the loss; drop one of "
            "them (--loss-spec-path '' if a script sets it)"
        )


def _check_estimator(args: Arguments) -> None:
    own = spec_of(args)
    if args.disable_compute_advantages_and_returns or (own is not None and not own.needs_advantages):
        return
    name = args.advantage_estimator
    ready = args.custom_reward_post_process_path or args.custom_convert_samples_to_train_data_path
    normalized = not (args.disable_rewards_normalization or args.custom_advantage_function_path or ready)
    if name in BY_GROUP and args.n_samples_per_prompt == 1 and normalized:
        raise ConfigError(
            "with one sample per prompt, normalising rewards in groups makes every advantage 0; "
            "add --disable-rewards-normalization, or increase --n-samples-per-prompt"
        )
    if name in WHITENED and not args.normalize_advantages:
        raise ConfigError(f"--advantage-estimator {name} needs --normalize-advantages")


def switch_adapters(args: Arguments) -> None:
    """Enables LoRA if any of its flags is set."""
    args.use_lora = args.use_lora or args.load_in_4bit or any(vars(args)[name] is not None for name in LORA)


def check_lora(args: Arguments) -> None:
    """Fills in the defaults of LoRA, and how engines receive adapters.

    Raises:
        ConfigError: engines do not support separate adapters.
    """
    _check_shipping(args)
    _check_parent(args)
    if not args.use_lora:
        return
    args.lora_rank = DEFAULT_RANK if args.lora_rank is None else args.lora_rank
    args.lora_alpha = DEFAULT_ALPHA if args.lora_alpha is None else args.lora_alpha
    args.lora_dropout = 0.0 if args.lora_dropout is None else args.lora_dropout


def _check_parent(args: Arguments) -> None:
    """Raises ConfigError if new adapters would start from one that this run trains."""
    save = Path(str(args.save)).resolve()
    if args.adapter_parent is not None and Path(args.adapter_parent).resolve().is_relative_to(save):
        raise ConfigError(
            f"--adapter-parent {args.adapter_parent} is in this run's --save: all adapters would "
            "inherit one person's training, and it would be deleted when that person is "
            "forgotten; copy a checkpoint for all adapters to another folder"
        )


def _check_shipping(args: Arguments) -> None:
    """Checks and completes --ship-adapters: whether engines receive adapters."""
    able = args.use_lora and args.rollout_backend == "embedded" and not args.load_in_4bit
    if args.ship_adapters and args.load_in_4bit:
        raise ConfigError(
            "--ship-adapters: an engine would merge into the stored model, but --load-in-4bit "
            "trains on a 4-bit model; drop it, and engines get the trained weights"
        )
    if args.ship_adapters and not able:
        raise ConfigError(
            f"--ship-adapters: --rollout-backend {args.rollout_backend} would need the adapter's "
            "name in every request, and loaded adapters could not be verified; drop it, and "
            "engines get merged models"
        )
    args.ship_adapters = able if args.ship_adapters is None else args.ship_adapters
