"""The losses of the two combined methods (OpenClaw-RL, arXiv 2603.10165), as sums of slime's components."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from claw_base.settings.declare import read
from openclaw_combine.flags import FLAGS, VARIABLES, CombineFlags, TopkSelectFlags, check_weights, refuse
from slime.losses import (
    Component,
    Compute,
    Distribution,
    LossBatch,
    LossOutput,
    LossSpec,
    Reducer,
    clipped_topk_loss,
    combined_advantages,
    forward_kl_topk,
    policy_component,
    reverse_kl_topk,
    targets_of,
    topk_settings,
)
from slime.losses.teacher_topk import SubsetMode

__all__ = ["FLAGS", "VARIABLES", "combine", "topk_select"]

POLICY_METRICS = {"pg_loss": "grpo_pg_loss", "pg_clipfrac": "grpo_pg_clipfrac", "ppo_kl": "ppo_kl_sampled"}


def combine(args: Any) -> LossSpec:
    """Returns the policy loss over one advantage of rewards and teacher. Raises ConfigError for invalid flags."""
    flags = read(CombineFlags, args)
    check_weights(flags, ("combine_w_rl", "combine_w_opd"))
    refuse(args, TopkSelectFlags, "combine", "topk_select")
    compute = partial(of_both, policy_component(args), flags)
    return LossSpec(
        (Component("combine", 1.0, compute),),
        needs_advantages=True,
        distils="sampled",
        asks_teacher=bool(flags.combine_w_opd),
        reported={"w_rl": flags.combine_w_rl, "w_opd": flags.combine_w_opd},
    )


def topk_select(args: Any) -> LossSpec:
    """Returns the policy loss over rewards, and distillation from the hints that the trainer selects.

    Raises:
        ConfigError: invalid flags.
    """
    flags = read(TopkSelectFlags, args)
    check_weights(flags, ("topk_w_rl", "topk_w_opd"))
    refuse(args, CombineFlags, "topk_select", "combine")
    low = args.eps_clip if flags.topk_eps_clip is None else flags.topk_eps_clip
    high = args.eps_clip_high if flags.topk_eps_clip_high is None else flags.topk_eps_clip_high
    policy = partial(of_rewards, policy_component(args, (low, high)))
    hints = partial(of_hints, flags, (low, high))
    # A forward KL needs the teacher's ids: mass that the student lacks is on ids that it does not list.
    subset: SubsetMode = "teacher" if flags.topk_divergence == "forward" else LossSpec.subset
    parts = Component("policy", flags.topk_w_rl, policy), Component("opd", flags.topk_w_opd, hints)
    return LossSpec(
        tuple(part for part in parts if part.weight),
        needs_advantages=bool(flags.topk_w_rl),
        distils="topk",
        asks_teacher=bool(flags.topk_w_opd),
        subset=subset,
        without_hint="plain" if flags.topk_plain_teacher else "skip",
        unhinted_rate=_unhinted_rate(flags),
        reported={
            **topk_settings(args, subset),
            "w_rl": flags.topk_w_rl,
            "w_opd": flags.topk_w_opd,
        },
    )


def _unhinted_rate(flags: TopkSelectFlags) -> float:
    if flags.topk_plain_teacher or not flags.topk_w_opd:
        return 1.0
    return min(1.0, flags.topk_w_rl / flags.topk_w_opd)


def of_both(
    policy: Compute, flags: CombineFlags, dist: Distribution, batch: LossBatch, reducer: Reducer
) -> LossOutput:
    """Returns the policy loss with the advantage w_opd (teacher - old log-prob) + w_rl reward."""
    if batch.advantages is None:
        raise ValueError("combine needs the advantages of rewards")
    old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    taught = batch.taught if batch.taught is not None else torch.zeros_like(old, dtype=torch.bool)
    teacher = batch.teacher_log_probs if batch.teacher_log_probs is not None else old
    weights = flags.combine_w_rl, flags.combine_w_opd
    centred = batch.segments if flags.combine_center_teacher else None
    advantages, gap = combined_advantages(batch.advantages, old, teacher, taught, *weights, centred)
    if batch.behaviour_log_probs is None:
        output = policy(dist, replace(batch, advantages=advantages), reducer)
    else:
        output = _two_ratios(policy, dist, batch, flags.combine_w_opd * gap, flags, reducer)
    measured = {"opd_teacher_student_logprob_abs_mean": gap.abs(), "opd_taught": taught.to(gap.dtype)}
    return LossOutput(output.loss, output.metrics | {name: reducer(x) for name, x in measured.items()})


def _two_ratios(
    policy: Compute,
    dist: Distribution,
    batch: LossBatch,
    of_teacher: torch.Tensor,
    flags: CombineFlags,
    reducer: Reducer,
) -> LossOutput:
    """Returns the loss of turns that are trained again. The importance ratio of their rewards is relative to the
    weights that sampled them, that of the teacher's part [T] to the current weights."""
    assert batch.advantages is not None
    rewarded = policy(dist, replace(batch, advantages=flags.combine_w_rl * batch.advantages), reducer)
    taught = policy(dist, replace(batch, advantages=of_teacher, behaviour_log_probs=None), reducer)
    loss = rewarded.loss + taught.loss
    return LossOutput(loss, rewarded.metrics | {"pg_loss": loss.detach()})


def of_rewards(policy: Compute, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """Returns the policy loss under the metric names of OpenClaw-RL's hybrid method."""
    output = policy(dist, batch, reducer)
    return replace(output, metrics={POLICY_METRICS.get(name, name): x for name, x in output.metrics.items()})


def of_hints(
    flags: TopkSelectFlags,
    clip: tuple[float, float | None],
    dist: Distribution,
    batch: LossBatch,
    reducer: Reducer,
) -> LossOutput:
    targets = targets_of(batch)
    if flags.topk_divergence == "clipped":
        return clipped_topk_loss(dist, targets, reducer, flags.topk_adv_diff_clip, *clip)
    divergence = forward_kl_topk if flags.topk_divergence == "forward" else reverse_kl_topk
    return divergence(dist, targets, reducer)
