"""Builds the training loss from the flags."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError, unknown_name
from slime.hooks import load_hook
from slime.losses import Component, LossSpec, load_custom_loss, policy_component
from slime.losses.component import custom_term, entropy_term, kl_term, sft_term

if TYPE_CHECKING:
    from slime.flags.loss import LossArguments
    from slime.flags.sides import ObjectiveSide


def loss_spec(args: ObjectiveSide) -> LossSpec:
    """Returns the loss that the flags select.

    Raises:
        ConfigError: a name is unknown, a hook cannot be loaded, or a hook returns the wrong type.
    """
    if args.loss_type == "sft_loss":
        return LossSpec((Component("sft", 1.0, sft_term),))
    if args.loss_spec_path:
        return completed(args, own_spec(args))
    if args.loss_type == "custom_loss":
        return _custom_spec(args)
    if args.loss_type != "policy_loss":
        raise unknown_name("--loss-type", args.loss_type, ("policy_loss", "sft_loss", "custom_loss"))
    distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
    component = Component("policy", 1.0, policy_component(args))
    own = LossSpec((component,), needs_advantages=True, distils="sampled" if distils else None)
    return completed(args, own)


def own_spec(args: LossArguments) -> LossSpec:
    """Returns the loss that the function of --loss-spec-path creates from the flags.

    Raises:
        ConfigError: it cannot be loaded, rejects the flags, or does not return a `LossSpec`.
    """
    spec = load_hook(args, "loss_spec_path")(args)
    if not isinstance(spec, LossSpec):
        raise ConfigError(
            f"--loss-spec-path {args.loss_spec_path} returned a {type(spec).__name__}; it must return a LossSpec"
        )
    return spec


def completed(args: ObjectiveSide, own: LossSpec) -> LossSpec:
    """Returns the loss with the flags' entropy and KL terms, and the inputs that they and the estimator need."""
    if own.on_logits is not None:
        return own
    use_kl = args.use_kl_loss and args.kl_loss_coef != 0
    common = [Component("entropy", -args.entropy_coef, entropy_term)]
    if use_kl:
        divergence = partial(kl_term, args.kl_loss_type, args.use_unbiased_kl)
        common.append(Component("kl", args.kl_loss_coef, divergence))
    gradient = own.needs_advantages
    return replace(
        own,
        components=(*own.components, *common),
        needs_reference=own.needs_reference or use_kl or (gradient and args.kl_coef != 0),
        needs_old=own.needs_old or (gradient and _advantages_need_old(args)),
        needs_rollout_log_probs=own.needs_rollout_log_probs or (gradient and _needs_engine(args)),
    )


def _needs_engine(args: LossArguments) -> bool:
    return bool(args.use_tis or args.get_mismatch_metrics or args.use_rollout_logprobs)


def _advantages_need_old(args: ObjectiveSide) -> bool:
    distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
    hooked = args.custom_advantage_function_path or args.rollout_data_postprocess_path
    return bool(distils or args.kl_coef != 0 or hooked)


def custom_config(args: LossArguments) -> dict[str, Any]:
    """Returns the `config` of a custom loss: every flag by name, `clip_range` (--eps-clip), and `kl_coeff` if
    set."""
    config = dict(vars(args)) | {"clip_range": args.eps_clip}
    return config | {"kl_coeff": args.kl_loss_coef} if args.kl_loss_coef else config


def _custom_spec(args: ObjectiveSide) -> LossSpec:
    assert args.custom_loss_function_path is not None
    function, signature = load_custom_loss(args.custom_loss_function_path)
    advantages = not args.disable_compute_advantages_and_returns
    if signature == "pack":
        wants_reference = bool(args.use_kl_loss or args.kl_coef != 0)
        return LossSpec((), advantages, wants_reference, needs_old=advantages, on_logits=function)
    if not advantages:
        raise ConfigError("this custom loss uses advantages; remove --disable-compute-advantages-and-returns")
    component = Component("custom", 1.0, partial(custom_term, function, custom_config(args)))
    return LossSpec((component,), True, needs_reference=True, needs_old=_advantages_need_old(args))
