"""Refuses losses, estimators and adapters that do not go together; derives what their flags imply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.arguments.declare import option
from slime.arguments.groups.lora import DEFAULT_ALPHA, DEFAULT_RANK
from slime.arguments.rules.distillation import check_distillation, check_staleness, loss_flag, spec_of
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

BY_GROUP = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
WHITENED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
SHAPED = (*WHITENED, "ppo")
DISCOUNTED = ("reinforce_plus_plus", "ppo")
CRITIC = {
    "lambd": 1.0,
    "value_clip": 0.2,
    "critic_lr": None,
    "critic_load": None,
    "num_critic_only_steps": 0,
}
NOT_FOR_SFT = (
    "use_kl_loss",
    "entropy_coef",
    "eps_clip_c",
    "use_opsm",
    "use_tis",
    "use_rollout_logprobs",
    "get_mismatch_metrics",
    "use_opd",
    "kl_coef",
    "normalize_advantages",
    "custom_loss_function_path",
    "loss_spec_path",
    "custom_advantage_function_path",
    "custom_pg_loss_reducer_function_path",
)
ONLY_POLICY = (
    "entropy_coef",
    "eps_clip_c",
    "use_opsm",
    "use_tis",
    "get_mismatch_metrics",
    "custom_pg_loss_reducer_function_path",
)
LORA = ("lora_rank", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save")


def check_algorithm(args: Arguments) -> None:
    """Checks loss and advantages.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    _resolve_custom(args)
    check_staleness(args)
    check_distillation(args)
    if args.loss_type == "sft_loss":
        _refuse(args, NOT_FOR_SFT, "--loss-type sft_loss")
        return
    _check_custom(args)
    _check_estimator(args)
    _check_critic(args)
    _check_divergence(args)
    _check_policy(args)


def _refuse(args: Arguments, names: tuple[str, ...], where: str) -> None:
    for name in names:
        if getattr(args, name):
            raise ConfigError(f"{option(name)} has no meaning with {where}; drop it")


def _resolve_custom(args: Arguments) -> None:
    """A function alone is a custom loss; one that makes a `LossSpec` is taken as --loss-spec-path takes it."""
    path = args.custom_loss_function_path
    if args.loss_type == "sft_loss" or not (path or args.loss_spec_path):
        return
    args.loss_type = "custom_loss"
    if not path:
        return
    from slime.losses import load_custom_loss, own_spec  # loads torch, as the custom loss does

    if load_custom_loss(path)[1] == "spec":
        args.loss_spec_path, args.custom_loss_function_path = path, None
        if not own_spec(args).needs_advantages:
            args.disable_compute_advantages_and_returns = False
    elif args.loss_spec_path:
        raise ConfigError(
            "--custom-loss-function-path and --loss-spec-path name two losses; drop one of them (--loss-spec-path '' "
            "where a script gives it)"
        )


def _check_custom(args: Arguments) -> None:
    if args.loss_type != "custom_loss" or args.loss_spec_path:
        _refuse(args, ("disable_compute_advantages_and_returns",), loss_flag(args))
        return
    if not args.custom_loss_function_path:
        raise ConfigError("--loss-type custom_loss needs --loss-spec-path or --custom-loss-function-path")
    _refuse(args, ONLY_POLICY, "a custom loss")
    if args.advantage_estimator in ("gspo", "cispo"):
        raise ConfigError(
            f"--advantage-estimator {args.advantage_estimator} names a policy loss too, but the loss is a "
            "custom one; take grpo"
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
    if args.disable_rewards_normalization and args.disable_grpo_std_normalization:
        raise ConfigError(
            "--disable-grpo-std-normalization changes nothing with --disable-rewards-normalization; drop it"
        )
    if name in WHITENED and not args.normalize_advantages:
        raise ConfigError(f"--advantage-estimator {name} needs --normalize-advantages")
    if name == "step_wise" and args.normalize_advantages:
        raise ConfigError("--normalize-advantages would undo the normalisation of single steps; drop it")
    if name == "on_policy_distillation" and args.use_opd:
        raise ConfigError("--use-opd adds distillation to another estimator; drop one of the two")
    if args.opd_kl_coef != 1.0 and not args.use_opd:
        raise ConfigError("--opd-kl-coef needs --use-opd")
    if not 0 <= args.gamma <= 1:
        raise ConfigError(f"--gamma must be from 0 to 1, got {args.gamma}")
    if args.gamma != 1 and name not in DISCOUNTED:
        raise ConfigError(f"--gamma has no meaning with --advantage-estimator {name}; drop it")


def _check_critic(args: Arguments) -> None:
    if args.advantage_estimator != "ppo":
        for name, default in CRITIC.items():
            if getattr(args, name) != default:
                raise ConfigError(f"{option(name)} needs --advantage-estimator ppo, which has a critic")
        return
    if args.custom_advantage_function_path:
        raise ConfigError(
            "--custom-advantage-function-path takes the place of ppo's advantages, and its critic would have "
            "nothing to learn; drop one of the two"
        )
    if args.disable_compute_advantages_and_returns:
        raise ConfigError("--advantage-estimator ppo needs advantages; drop the flag that disables them")
    if not 0 <= args.lambd <= 1:
        raise ConfigError(f"--lambd must be from 0 to 1, got {args.lambd}")
    if not args.value_clip > 0:
        raise ConfigError(f"--value-clip must be above 0, got {args.value_clip}")
    if args.num_critic_only_steps < 0:
        raise ConfigError(f"--num-critic-only-steps must be 0 or more, got {args.num_critic_only_steps}")
    if args.critic_lr is not None and args.critic_lr < 0:
        raise ConfigError(f"--critic-lr must be 0 or more, got {args.critic_lr}")


def _check_divergence(args: Arguments) -> None:
    if args.kl_coef and args.kl_loss_coef:
        raise ConfigError("--kl-coef and --kl-loss-coef are two ways to the same end; drop one of them")
    if args.kl_coef and args.advantage_estimator not in SHAPED:
        raise ConfigError(
            f"--kl-coef shapes the rewards of {' and '.join(SHAPED)}, not of {args.advantage_estimator}; "
            "use --use-kl-loss with --kl-loss-coef"
        )
    if args.ref_update_interval is not None:
        if args.ref_update_interval < 1:
            raise ConfigError(f"--ref-update-interval must be 1 or more, got {args.ref_update_interval}")
        if not args.kl_coef and not args.kl_loss_coef:
            raise ConfigError("--ref-update-interval needs a reference model: --kl-loss-coef or --kl-coef")
    if args.kl_loss_coef and not args.use_kl_loss:
        raise ConfigError(f"--kl-loss-coef {args.kl_loss_coef} needs --use-kl-loss")
    if args.use_unbiased_kl and not args.kl_loss_coef:
        raise ConfigError("--use-unbiased-kl needs --use-kl-loss and a --kl-loss-coef above 0")


def _check_policy(args: Arguments) -> None:
    if args.eps_clip >= 1:
        raise ConfigError(f"--eps-clip must be below 1, got {args.eps_clip}")
    if args.eps_clip_c is not None and not args.eps_clip_c > 1:
        raise ConfigError(f"--eps-clip-c must be above 1, got {args.eps_clip_c}")
    if args.eps_clip_c is not None and args.advantage_estimator == "cispo":
        raise ConfigError("--eps-clip-c bounds a clipped ratio, which cispo does not have; drop it")
    if args.opsm_delta != 1e-4 and not args.use_opsm:
        raise ConfigError("--opsm-delta needs --use-opsm")
    changed = args.tis_mode != "truncate" or args.tis_clip != 2.0 or args.tis_clip_low
    if (changed or args.custom_tis_function_path) and not (args.use_tis or args.get_mismatch_metrics):
        raise ConfigError(
            "--tis-mode, --tis-clip, --tis-clip-low and --custom-tis-function-path need --use-tis"
        )
    if args.use_rollout_logprobs and (args.use_tis or args.get_mismatch_metrics):
        raise ConfigError(
            "--use-rollout-logprobs makes the engine's log-probs the old ones; there is nothing left to weigh, "
            "so drop --use-tis and --get-mismatch-metrics"
        )
    if args.tis_clip_low > args.tis_clip:
        raise ConfigError(f"--tis-clip-low {args.tis_clip_low} is above --tis-clip {args.tis_clip}")


def check_lora(args: Arguments) -> None:
    """Switches LoRA on where any of its flags is given, and fills in its defaults.

    Raises:
        ConfigError: a value out of range.
    """
    args.use_lora = (
        args.use_lora or args.load_in_4bit or any(getattr(args, name) is not None for name in LORA)
    )
    _check_shipping(args)
    if not args.use_lora:
        return
    args.lora_rank = DEFAULT_RANK if args.lora_rank is None else args.lora_rank
    args.lora_alpha = DEFAULT_ALPHA if args.lora_alpha is None else args.lora_alpha
    args.lora_dropout = 0.0 if args.lora_dropout is None else args.lora_dropout
    if args.lora_rank < 1:
        raise ConfigError(f"--lora-rank must be 1 or more, got {args.lora_rank}")
    if not args.lora_alpha > 0:
        raise ConfigError(f"--lora-alpha must be above 0, got {args.lora_alpha}")
    if not 0 <= args.lora_dropout < 1:
        raise ConfigError(f"--lora-dropout must be 0 or more and below 1, got {args.lora_dropout}")


def _check_shipping(args: Arguments) -> None:
    """What engines get of adapters."""
    able = args.use_lora and args.rollout_backend == "embedded" and not args.load_in_4bit
    if args.ship_adapters and not args.use_lora:
        raise ConfigError("--ship-adapters needs --use-lora")
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
