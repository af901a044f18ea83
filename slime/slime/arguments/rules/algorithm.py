"""Refuses estimators and adapters that cannot work; derives what their flags imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.arguments.rules.distillation import check_distillation, spec_of
from slime.errors import ConfigError
from slime.flags.lora import DEFAULT_ALPHA, DEFAULT_RANK

if TYPE_CHECKING:
    from slime.flags import Arguments

BY_GROUP = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
WHITENED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
LORA = ("lora_rank", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save")


def check_algorithm(args: Arguments) -> None:
    """Checks loss and advantages.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    check_distillation(args)
    if args.loss_type != "sft_loss":
        _check_estimator(args)
        if args.tis_clip_low > args.tis_clip:
            raise ConfigError(f"--tis-clip-low {args.tis_clip_low} is above --tis-clip {args.tis_clip}")


def resolve_custom_loss(args: Arguments) -> None:
    """A function alone is a custom loss; one that makes a `LossSpec` is taken as --loss-spec-path takes it."""
    path = args.custom_loss_function_path
    if args.loss_type == "sft_loss" or not (path or args.loss_spec_path):
        return
    args.loss_type = "custom_loss"
    if not path:
        return
    # both load torch, as the custom loss does
    from slime.losses import load_custom_loss
    from slime.training.core.objective import own_spec

    if load_custom_loss(path)[1] == "spec":
        args.loss_spec_path, args.custom_loss_function_path = path, None
        if not own_spec(args).needs_advantages:
            args.disable_compute_advantages_and_returns = False
    elif args.loss_spec_path:
        raise ConfigError(
            "--custom-loss-function-path and --loss-spec-path name two losses; drop one of them (--loss-spec-path '' "
            "where a script gives it)"
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
            "with one sample a prompt, normalising rewards in groups makes every advantage 0; "
            "add --disable-rewards-normalization, or more --n-samples-per-prompt"
        )
    if name in WHITENED and not args.normalize_advantages:
        raise ConfigError(f"--advantage-estimator {name} needs --normalize-advantages")


def switch_adapters(args: Arguments) -> None:
    """Switches LoRA on where any of its flags is given."""
    args.use_lora = args.use_lora or args.load_in_4bit or any(vars(args)[name] is not None for name in LORA)


def check_lora(args: Arguments) -> None:
    """Fills in the defaults of LoRA where it is on, and what engines get of adapters.

    Raises:
        ConfigError: engines cannot get adapters alone.
    """
    _check_shipping(args)
    if not args.use_lora:
        return
    args.lora_rank = DEFAULT_RANK if args.lora_rank is None else args.lora_rank
    args.lora_alpha = DEFAULT_ALPHA if args.lora_alpha is None else args.lora_alpha
    args.lora_dropout = 0.0 if args.lora_dropout is None else args.lora_dropout


def _check_shipping(args: Arguments) -> None:
    """What engines get of adapters."""
    able = args.use_lora and args.rollout_backend == "embedded" and not args.load_in_4bit
    if args.ship_adapters and args.load_in_4bit:
        raise ConfigError(
            "--ship-adapters: an engine would merge into the model as stored, and --load-in-4bit trains on one in "
            "4 bits; drop it, and engines get what was trained"
        )
    if args.ship_adapters and not able:
        raise ConfigError(
            f"--ship-adapters: --rollout-backend {args.rollout_backend} would need the adapter's name in every "
            "request, and what it loaded could not be proven; drop it, and engines get merged models"
        )
    args.ship_adapters = able if args.ship_adapters is None else args.ship_adapters
