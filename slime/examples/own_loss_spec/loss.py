"""A method outside slime: distillation by the generalised Jensen-Shannon divergence, in addition to rewards if these
have a weight.

GKD (Agarwal et al., ICLR 2024, arXiv 2306.13649), eq. 1: for teacher P, student Q and 0 < beta < 1

    JSD(P, Q) = beta KL(P || M) + (1 - beta) KL(Q || M),   M = beta P + (1 - beta) Q

here over the likely ids that the flags choose and one bin for all others. With hints in the teacher's prompt it is
self-distillation from feedback, as in SDPO (Huebotter 2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from claw_base.settings.declare import flag, read
from slime.losses import (
    Component,
    Distribution,
    LossBatch,
    LossOutput,
    LossSpec,
    Reducer,
    policy_component,
    tail_log_prob,
    targets_of,
    topk_settings,
)

NO_MASS = -1e4  # stands for log 0, without NaN gradients


@dataclass(frozen=True)
class JsdFlags:
    """Jensen-Shannon distillation."""

    jsd_beta: float = flag(0.5, "share of the teacher in the mixture", env=("JSD_BETA",), above=0, below=1)
    jsd_w_rl: float = flag(0.0, "weight of the rewards; 0: learn only from the teacher", least=0)


FLAGS = (JsdFlags,)


def loss_spec(args: Any) -> LossSpec:
    """Returns the loss that the flags describe. A sample without a hint is held to its plain prompt's teacher.

    Raises:
        ConfigError: a flag out of range.
    """
    flags = read(JsdFlags, args)
    parts = [Component("jsd", 1.0, partial(jensen_shannon, flags.jsd_beta))]
    if flags.jsd_w_rl:
        parts.append(Component("policy", flags.jsd_w_rl, policy_component(args)))
    return LossSpec(
        tuple(parts),
        needs_advantages=bool(flags.jsd_w_rl),
        distils="topk",
        without_hint="plain",
        reported={**topk_settings(args, LossSpec.subset), "jsd_beta": flags.jsd_beta},
    )


def jensen_shannon(beta: float, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """Returns the loss in nats, over K + 1 bins a token; 0 without a teacher."""
    targets = targets_of(batch)
    student = in_bins(dist.log_probs(targets.ids), targets.valid)
    teacher = in_bins(targets.teacher_log_probs, targets.valid)
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    divergence = beta * divergence_of(teacher, mixture) + (1 - beta) * divergence_of(student, mixture)
    loss = reducer(divergence)
    return LossOutput(loss, {"jsd": loss.detach()})


def in_bins(log_probs: Tensor, valid: Tensor) -> Tensor:
    """[T, K] -> [T, K + 1]: the last bin is for all ids that are not valid."""
    rest = tail_log_prob(log_probs, valid).unsqueeze(-1)
    return torch.cat([log_probs.masked_fill(~valid, NO_MASS), rest], dim=-1)


def divergence_of(first: Tensor, second: Tensor) -> Tensor:
    """Returns KL(first || second) [T] of log-probs [T, K + 1]."""
    return (first.exp() * (first - second)).sum(-1)
