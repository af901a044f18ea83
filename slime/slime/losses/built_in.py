"""What each component of a loss computes, (distribution, batch, reducer) -> LossOutput: settings bound to formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slime.losses.component import Compute, LossBatch
from slime.losses.corrections import corrections_of
from slime.losses.custom import sample_loss
from slime.losses.distillation import reverse_kl_topk
from slime.losses.distribution import Distribution
from slime.losses.kl import KLType, kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer
from slime.losses.settings import PolicySettings, TeacherSettings, settings_of
from slime.losses.teacher_topk import SubsetMode, TopKTargets


def policy_component(args: Any, clip: tuple[float, float | None] | None = None) -> Compute:
    """The policy component.

    Args:
        args: `PolicySettings`, or the arguments that a hook gets, whose own hooks are loaded.
        clip: replaces the two clips.
    """
    settings = settings_of(PolicySettings, args)
    low, high = clip or (settings.eps_clip, settings.eps_clip_high)
    named = settings.advantage_estimator
    objective: Any = named if named in ("gspo", "cispo") else "ppo"
    corrections = corrections_of(settings.corrections)
    make_reducer = settings.make_reducer

    def compute(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
        if batch.advantages is None:
            raise ValueError("policy_loss needs advantages")
        own = _pg_reducer(make_reducer, settings.calculate_per_token_loss, batch) if make_reducer else None
        return policy_loss(
            dist,
            batch.ids,
            batch.old_log_probs if settings.follows_teacher else ratio_from(dist, batch),
            batch.advantages,
            reducer,
            low,
            high,
            settings.eps_clip_c,
            objective,
            batch.segments,
            batch.rollout_log_probs,
            corrections,
            own,
            batch.older,
        )

    return compute


def ratio_from(dist: Distribution, batch: LossBatch) -> Tensor | None:
    """Log-probs [T] that the importance ratio counts from: of what is trained again those of the weights that wrote it,
    else the old ones. So PPO's clip bounds how far all its trainings together move a token. Advantages of a teacher need
    no such bound: they are nothing where the policy agrees with it."""
    if batch.behaviour_log_probs is None:
        return batch.old_log_probs
    old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    return torch.where(batch.behaviour_log_probs.isnan(), old, batch.behaviour_log_probs)


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


def targets_of(batch: LossBatch) -> TopKTargets:
    """The teacher's log-probs of likely ids. Raises ValueError if no teacher was asked."""
    if batch.targets is None:
        raise ValueError("a distillation over likely ids needs to know what the teacher says of them")
    return batch.targets


def topk_divergence(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """`reverse_kl_topk` of the batch, as a component."""
    return reverse_kl_topk(dist, targets_of(batch), reducer)


def topk_settings(args: Any, subset: SubsetMode) -> dict[str, float]:
    """How likely ids and hints are chosen, as numbers for `LossSpec.reported`.

    Args:
        args: `TeacherSettings`, or the arguments that a hook gets.
        subset: as in `LossSpec`.
    """
    settings = settings_of(TeacherSettings, args)
    modes, selections = ("student", "overlap", "teacher"), ("shortest", "token_optimal", "sequence_optimal")
    return {
        "distill_subset_mode_id": float(modes.index(settings.distill_subset_mode or subset)),
        "hint_selection_mode_id": float(selections.index(settings.hint_selection)),
    }


def entropy(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return entropy_loss(dist, reducer)


def divergence(
    kind: KLType, unbiased: bool, dist: Distribution, batch: LossBatch, reducer: Reducer
) -> LossOutput:
    if batch.ref_log_probs is None:
        raise ValueError("kl_loss needs the log-probs of a reference model")
    old = None
    if unbiased:
        old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    return kl_loss(dist, batch.ids, batch.ref_log_probs, reducer, kind, old)


def sft(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return sft_loss(dist, batch.ids, reducer)


def custom(
    function: Callable[..., object],
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


def sft_loss(dist: Distribution, target_ids: Tensor, reducer: Reducer) -> LossOutput:
    """Cross-entropy of `target_ids` [T] under `dist`, in nats.

    Returns:
        The reduced loss, and `sft_loss` as its only metric.
    """
    loss = -reducer(dist.log_probs(target_ids))
    return LossOutput(loss=loss, metrics={"sft_loss": loss.detach()})
