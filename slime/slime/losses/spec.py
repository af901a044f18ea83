"""A training loss as a sum of weighted components with one dictionary of metrics, built from the flags."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.losses import built_in
from slime.losses.component import Component, LossBatch, LossSpec
from slime.losses.custom import custom_config, load_custom_loss
from slime.losses.distribution import Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer


def loss_spec(args: Any) -> LossSpec:
    """The loss that the flags describe.

    Raises:
        ConfigError: for a loss type that does not exist, or a hook that cannot be loaded.
    """
    if args.loss_type == "sft_loss":
        return LossSpec((Component("sft", 1.0, built_in.sft),))
    if args.loss_type == "custom_loss":
        return _custom_spec(args)
    use_kl = args.use_kl_loss and args.kl_loss_coef != 0
    common = [Component("entropy", -args.entropy_coef, built_in.entropy)]
    if use_kl:
        divergence = partial(built_in.divergence, args.kl_loss_type, args.use_unbiased_kl)
        common.append(Component("kl", args.kl_loss_coef, divergence))
    own, teacher, has_policy = _own_components(args)
    return LossSpec(
        (*own, *common),
        needs_advantages=has_policy,
        needs_reference=use_kl or (has_policy and args.kl_coef != 0),
        needs_old=has_policy and _advantages_need_old(args),
        needs_rollout_log_probs=has_policy and _needs_engine(args),
        teacher=teacher,
    )


def _own_components(args: Any) -> tuple[list[Component], Literal["sampled", "topk"] | None, bool]:
    """What a loss type has beside entropy and KL, what it asks a teacher for, and whether it takes advantages."""
    match args.loss_type:
        case "policy_loss":
            distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
            return [Component("policy", 1.0, built_in.policy(args))], "sampled" if distils else None, True
        case "combine":
            component = Component("combine", 1.0, partial(built_in.combine, built_in.policy(args), args))
            return [component], "sampled" if args.combine_w_opd else None, True
        case "opd_topk":
            return [Component("opd", 1.0, built_in.reverse_kl)], "topk", False
        case "topk_select":
            parts = []
            if args.topk_w_rl:
                parts.append(
                    Component(
                        "policy",
                        args.topk_w_rl,
                        partial(built_in.hybrid_policy, built_in.policy(args, built_in.topk_clip(args))),
                    )
                )
            if args.topk_w_opd:
                parts.append(Component("opd", args.topk_w_opd, partial(built_in.select_hints, args)))
            return parts, "topk" if args.topk_w_opd else None, bool(args.topk_w_rl)
    names = "policy_loss, sft_loss, custom_loss, opd_topk, combine or topk_select"
    raise ConfigError(f"--loss-type {args.loss_type} does not exist; choose {names}")


def _needs_engine(args: Any) -> bool:
    return bool(args.use_tis or args.get_mismatch_metrics or args.use_rollout_logprobs)


def _advantages_need_old(args: Any) -> bool:
    distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
    hooked = args.custom_advantage_function_path or args.rollout_data_postprocess_path
    return bool(distils or args.kl_coef != 0 or hooked)


def _custom_spec(args: Any) -> LossSpec:
    function, signature = load_custom_loss(args.custom_loss_function_path)
    advantages = not args.disable_compute_advantages_and_returns
    if signature == "pack":
        wants_reference = bool(args.use_kl_loss or args.kl_coef != 0)
        return LossSpec((), advantages, wants_reference, needs_old=advantages, on_logits=function)
    if not advantages:
        raise ConfigError("this custom loss takes advantages; drop --disable-compute-advantages-and-returns")
    component = Component("custom", 1.0, partial(built_in.custom, function, custom_config(args)))
    return LossSpec((component,), True, needs_reference=True, needs_old=_advantages_need_old(args))


def compute_loss(spec: LossSpec, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """Sum of the components; metrics of all of them, and `loss`.

    Raises:
        ValueError: two components report the same metric.
    """
    total: Tensor | None = None
    metrics: dict[str, Tensor] = {}
    for component in spec.components:
        with torch.set_grad_enabled(torch.is_grad_enabled() and component.weight != 0):
            part = component.compute(dist, batch, reducer)
        if twice := metrics.keys() & part.metrics.keys():
            raise ValueError(f"metrics {sorted(twice)} of component {component.name!r} exist already")
        metrics |= part.metrics
        if component.weight != 0:
            weighted = component.weight * part.loss
            total = weighted if total is None else total + weighted
    if total is None:
        raise ValueError("every component of the loss has weight 0")
    return LossOutput(loss=total, metrics=metrics | {"loss": total.detach()})
