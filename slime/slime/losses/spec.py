"""A training loss as a sum of weighted components with one dictionary of metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.losses.distribution import Distribution
from slime.losses.kl import kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer
from slime.losses.sft import sft_loss


@dataclass(frozen=True)
class LossBatch:
    """The response tokens of one micro-batch, all [T]; None where there is no such value.

    `old_log_probs` is None while the policy has not moved since sampling's weights were taken over: they are
    then the new log-probs themselves, and the importance ratio is exactly 1.
    """

    ids: Tensor
    advantages: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None


@dataclass(frozen=True)
class Component:
    """One summand. `weight` 0 means: measured, without gradients."""

    name: str
    weight: float
    compute: Callable[[Distribution, LossBatch, Reducer], LossOutput]


@dataclass(frozen=True)
class LossSpec:
    """What is minimised, and which inputs that needs."""

    components: tuple[Component, ...]
    needs_advantages: bool
    needs_reference: bool


def loss_spec(args: Any) -> LossSpec:
    """The loss that the flags describe.

    Raises:
        ConfigError: for a loss type that does not exist.
    """
    if args.loss_type == "sft_loss":
        return LossSpec((Component("sft", 1.0, _sft),), needs_advantages=False, needs_reference=False)
    if args.loss_type != "policy_loss":
        raise ConfigError(f"--loss-type {args.loss_type} does not exist; choose policy_loss or sft_loss")
    clip = partial(_policy, args.eps_clip, args.eps_clip_high, args.eps_clip_c)
    components = [Component("policy", 1.0, clip), Component("entropy", -args.entropy_coef, _entropy)]
    use_kl = args.use_kl_loss and args.kl_loss_coef != 0
    if use_kl:
        divergence = partial(_kl, args.kl_loss_type, args.use_unbiased_kl)
        components.append(Component("kl", args.kl_loss_coef, divergence))
    return LossSpec(tuple(components), needs_advantages=True, needs_reference=use_kl)


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


def _policy(
    low: float, high: float | None, dual: float | None, dist: Distribution, batch: LossBatch, reducer: Reducer
) -> LossOutput:
    if batch.advantages is None:
        raise ValueError("policy_loss needs advantages")
    return policy_loss(dist, batch.ids, batch.old_log_probs, batch.advantages, reducer, low, high, dual)


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
