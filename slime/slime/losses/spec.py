"""A training loss as a sum of weighted components with one dictionary of metrics, built from the flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.hooks import load_hook
from slime.losses.corrections import Correction, custom_tis, opsm, tis
from slime.losses.custom import custom_config, load_custom_loss, sample_loss
from slime.losses.distribution import Distribution
from slime.losses.kl import kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer
from slime.losses.segments import Segments
from slime.losses.sft import sft_loss


@dataclass(frozen=True)
class LossBatch:
    """The trained response tokens of one micro-batch, all [T]; None where there is no such value.

    `old_log_probs` is None while the policy has not moved since sampling's weights were taken over: they are
    then the new log-probs themselves, and the importance ratio is exactly 1.

    Attributes:
        rewards: of the samples as they came [S].
        segments: which token belongs to which sample.
        denominator: samples of the whole step, or its tokens with --calculate-per-token-loss.
    """

    ids: Tensor
    advantages: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    rewards: Tensor | None = None
    segments: Segments | None = None
    denominator: float = 1.0


@dataclass(frozen=True)
class Component:
    """One summand. `weight` 0 means: measured, without gradients."""

    name: str
    weight: float
    compute: Callable[[Distribution, LossBatch, Reducer], LossOutput]


@dataclass(frozen=True)
class LossSpec:
    """What is minimised, and which inputs that needs.

    Attributes:
        needs_old: old log-probs of every step before the first one, for advantages or a custom loss.
        on_logits: a custom loss f(args, batch, logits, sum_of_sample_mean), in place of components.
    """

    components: tuple[Component, ...] = ()
    needs_advantages: bool = False
    needs_reference: bool = False
    needs_old: bool = False
    needs_rollout_log_probs: bool = False
    on_logits: Callable[..., Any] | None = None


def loss_spec(args: Any) -> LossSpec:
    """The loss that the flags describe.

    Raises:
        ConfigError: for a loss type that does not exist, or a hook that cannot be loaded.
    """
    if args.loss_type == "sft_loss":
        return LossSpec((Component("sft", 1.0, _sft),))
    if args.loss_type == "custom_loss":
        return _custom_spec(args)
    if args.loss_type != "policy_loss":
        raise ConfigError(
            f"--loss-type {args.loss_type} does not exist; choose policy_loss, sft_loss or custom_loss"
        )
    components = [Component("policy", 1.0, _policy(args)), Component("entropy", -args.entropy_coef, _entropy)]
    use_kl = args.use_kl_loss and args.kl_loss_coef != 0
    if use_kl:
        divergence = partial(_kl, args.kl_loss_type, args.use_unbiased_kl)
        components.append(Component("kl", args.kl_loss_coef, divergence))
    return LossSpec(
        tuple(components),
        needs_advantages=True,
        needs_reference=use_kl or args.kl_coef != 0,
        needs_old=_advantages_need_old(args),
        needs_rollout_log_probs=args.use_tis,
    )


def _advantages_need_old(args: Any) -> bool:
    distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
    return bool(distils or args.kl_coef != 0 or args.custom_advantage_function_path)


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


def _policy(args: Any) -> Callable[[Distribution, LossBatch, Reducer], LossOutput]:
    """The policy component of the flags, its hooks loaded."""
    estimator = args.advantage_estimator
    objective: Any = estimator if estimator in ("gspo", "cispo") else "ppo"
    corrections: list[Correction] = []
    if args.use_opsm:
        corrections.append(opsm(args.opsm_delta))
    if args.use_tis and args.custom_tis_function_path:
        corrections.append(custom_tis(load_hook(args, "custom_tis_function_path"), args))
    elif args.use_tis:
        corrections.append(tis(args.tis_clip_low, args.tis_clip, icepop=args.tis_mode == "icepop"))
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
            args.eps_clip,
            args.eps_clip_high,
            args.eps_clip_c,
            objective,
            batch.segments,
            batch.rollout_log_probs,
            corrections,
            own,
        )

    return compute


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
