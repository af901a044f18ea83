"""A training loss as a sum of weighted components with one dictionary of metrics, built from the flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.hooks import load_hook
from slime.losses.component import Component, LossBatch, LossSpec
from slime.losses.corrections import Correction, custom_tis, measured_only, opsm, tis
from slime.losses.custom import custom_config, load_custom_loss, sample_loss
from slime.losses.distillation import combined_advantages, reverse_kl_topk, select_loss
from slime.losses.distribution import Distribution
from slime.losses.hints import TopKTargets
from slime.losses.kl import kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer
from slime.losses.sft import sft_loss

Compute = Callable[[Distribution, LossBatch, Reducer], LossOutput]


def loss_spec(args: Any) -> LossSpec:
    """The loss that the flags describe.

    Raises:
        ConfigError: for a loss type that does not exist, or a hook that cannot be loaded.
    """
    if args.loss_type == "sft_loss":
        return LossSpec((Component("sft", 1.0, _sft),))
    if args.loss_type == "custom_loss":
        return _custom_spec(args)
    use_kl = args.use_kl_loss and args.kl_loss_coef != 0
    common = [Component("entropy", -args.entropy_coef, _entropy)]
    if use_kl:
        divergence = partial(_kl, args.kl_loss_type, args.use_unbiased_kl)
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
            return [Component("policy", 1.0, _policy(args))], "sampled" if distils else None, True
        case "combine":
            component = Component("combine", 1.0, partial(_combine, _policy(args), args))
            return [component], "sampled" if args.combine_w_opd else None, True
        case "opd_topk":
            return [Component("opd", 1.0, _reverse_kl)], "topk", False
        case "topk_select":
            parts = []
            if args.topk_w_rl:
                parts.append(
                    Component("policy", args.topk_w_rl, partial(_grpo, _policy(args, _topk_clip(args))))
                )
            if args.topk_w_opd:
                parts.append(Component("opd", args.topk_w_opd, partial(_select, args)))
            return parts, "topk" if args.topk_w_opd else None, bool(args.topk_w_rl)
    names = "policy_loss, sft_loss, custom_loss, opd_topk, combine or topk_select"
    raise ConfigError(f"--loss-type {args.loss_type} does not exist; choose {names}")


def _needs_engine(args: Any) -> bool:
    return bool(args.use_tis or args.get_mismatch_metrics or args.use_rollout_logprobs)


def _topk_clip(args: Any) -> tuple[float, float | None]:
    low = args.eps_clip if args.topk_eps_clip is None else args.topk_eps_clip
    return low, args.eps_clip_high if args.topk_eps_clip_high is None else args.topk_eps_clip_high


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
    component = Component("custom", 1.0, partial(_custom, function, custom_config(args)))
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


def _policy(args: Any, clip: tuple[float, float | None] | None = None) -> Compute:
    """The policy component of the flags, its hooks loaded; `clip` replaces its two clips."""
    low, high = clip or (args.eps_clip, args.eps_clip_high)
    estimator = args.advantage_estimator
    objective: Any = estimator if estimator in ("gspo", "cispo") else "ppo"
    corrections: list[Correction] = []
    if args.use_opsm:
        corrections.append(opsm(args.opsm_delta))
    if args.use_tis or args.get_mismatch_metrics:
        weigh = _engine_weights(args)
        corrections.append(weigh if args.use_tis else measured_only(weigh))
    make_reducer = load_hook(args, "custom_pg_loss_reducer_function_path")

    def compute(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
        if batch.advantages is None:
            raise ValueError("policy_loss needs advantages")
        own = _pg_reducer(make_reducer, args.calculate_per_token_loss, batch) if make_reducer else None
        return policy_loss(
            dist,
            batch.ids,
            batch.old_log_probs,
            batch.advantages,
            reducer,
            low,
            high,
            args.eps_clip_c,
            objective,
            batch.segments,
            batch.rollout_log_probs,
            corrections,
            own,
            batch.older,
        )

    return compute


def _engine_weights(args: Any) -> Correction:
    """Weights of trainer over engine, as the flags want them."""
    if args.custom_tis_function_path:
        return custom_tis(load_hook(args, "custom_tis_function_path"), args)
    older = args.tis_spans == "older"
    return tis(args.tis_clip_low, args.tis_clip, icepop=args.tis_mode == "icepop", only_older=older)


def _pg_reducer(make: Callable[..., Reducer], per_token: bool, batch: LossBatch) -> Reducer:
    """slime's hook: f(total_lengths, response_lengths, loss_masks, per_token) -> reducer of [sum of R].

    It sums over samples, as slime's own reducers do; the division by the samples of the step comes after it.
    """
    segments = batch.segments
    if segments is None:
        raise ValueError("a custom reducer needs to know the samples of the tokens")
    masks = [mask.float() for mask in segments.masks]
    reduce = make(list(segments.total_lengths), list(segments.response_lengths), masks, per_token)
    return lambda values: reduce(segments.widen(values)) / batch.denominator


def _combine(
    policy: Compute, args: Any, dist: Distribution, batch: LossBatch, reducer: Reducer
) -> LossOutput:
    """The policy loss with the advantage w_opd (teacher - old log-prob) + w_rl reward."""
    if batch.advantages is None:
        raise ValueError("combine needs the advantages of rewards")
    old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    taught = batch.taught if batch.taught is not None else torch.zeros_like(old, dtype=torch.bool)
    teacher = batch.teacher_log_probs if batch.teacher_log_probs is not None else old
    weights = args.combine_w_rl, args.combine_w_opd
    advantages, gap = combined_advantages(batch.advantages, old, teacher, taught, *weights)
    output = policy(dist, replace(batch, advantages=advantages), reducer)
    measured = {"opd_teacher_student_logprob_abs_mean": gap.abs(), "opd_taught": taught.to(gap.dtype)}
    return LossOutput(output.loss, output.metrics | {name: reducer(x) for name, x in measured.items()})


def _grpo(policy: Compute, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """The policy loss under the metric names of OpenClaw-RL's hybrid method."""
    names = {"pg_loss": "grpo_pg_loss", "pg_clipfrac": "grpo_pg_clipfrac", "ppo_kl": "ppo_kl_sampled"}
    output = policy(dist, batch, reducer)
    return replace(output, metrics={names.get(name, name): x for name, x in output.metrics.items()})


def _targets(batch: LossBatch) -> TopKTargets:
    if batch.targets is None:
        raise ValueError("a distillation over likely ids needs to know what the teacher says of them")
    return batch.targets


def _reverse_kl(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return reverse_kl_topk(dist, _targets(batch), reducer)


def _select(args: Any, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return select_loss(dist, _targets(batch), reducer, args.topk_adv_diff_clip, *_topk_clip(args))


def _entropy(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return entropy_loss(dist, reducer)


def _kl(kind: Any, unbiased: bool, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    if batch.ref_log_probs is None:
        raise ValueError("kl_loss needs the log-probs of a reference model")
    old = None
    if unbiased:
        old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    return kl_loss(dist, batch.ids, batch.ref_log_probs, reducer, kind, old)


def _sft(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return sft_loss(dist, batch.ids, reducer)


def _custom(
    function: Callable[..., Any],
    config: dict[str, Any],
    dist: Distribution,
    batch: LossBatch,
    reducer: Reducer,
) -> LossOutput:
    """A user's loss on each sample; its value stands for every token, so that the reducer weighs samples."""
    segments, advantages, reference = batch.segments, batch.advantages, batch.ref_log_probs
    if segments is None or advantages is None or reference is None or batch.rewards is None:
        raise ValueError("a custom loss needs samples, rewards, advantages and a reference model")
    parts = zip(
        segments.split(dist.log_probs(batch.ids)),
        segments.split(reference),
        batch.rewards,
        segments.split(advantages),
        strict=True,
    )
    losses = torch.stack([sample_loss(function, config, *part) for part in parts])
    loss = reducer(segments.spread(losses))
    return LossOutput(loss=loss, metrics={"custom_loss": loss.detach()})
