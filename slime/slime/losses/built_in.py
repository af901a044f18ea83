"""What each component of a loss computes, (distribution, batch, reducer) -> LossOutput: flags bound to formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.hooks import load_hook
from slime.losses.component import Compute, LossBatch
from slime.losses.corrections import Correction, custom_tis, measured_only, opsm, tis
from slime.losses.custom import sample_loss
from slime.losses.distillation import reverse_kl_topk
from slime.losses.distribution import Distribution
from slime.losses.kl import KLType, kl_loss
from slime.losses.output import LossOutput
from slime.losses.policy import entropy_loss, policy_loss
from slime.losses.reducers import Reducer
from slime.losses.sft import sft_loss
from slime.losses.teacher_topk import SubsetMode, TopKTargets

if TYPE_CHECKING:
    from slime.flags.distillation import DistillationArguments
    from slime.flags.sides import ObjectiveSide

ICEPOP = {"truncate": False, "icepop": True}
ONLY_OLDER = {"all": False, "older": True}
"""What --tis-mode and --tis-spans name."""


def policy_component(args: ObjectiveSide, clip: tuple[float, float | None] | None = None) -> Compute:
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
    distils = estimator == "on_policy_distillation" or args.use_opd

    def compute(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
        if batch.advantages is None:
            raise ValueError("policy_loss needs advantages")
        own = _pg_reducer(make_reducer, args.calculate_per_token_loss, batch) if make_reducer else None
        return policy_loss(
            dist,
            batch.ids,
            batch.old_log_probs if distils else ratio_from(dist, batch),
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


def ratio_from(dist: Distribution, batch: LossBatch) -> Tensor | None:
    """Log-probs [T] that the importance ratio counts from: of what is trained again those of the weights that wrote it,
    else the old ones. So PPO's clip bounds how far all its trainings together move a token. Advantages of a teacher need
    no such bound: they are nothing where the policy agrees with it."""
    if batch.behaviour_log_probs is None:
        return batch.old_log_probs
    old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    return torch.where(batch.behaviour_log_probs.isnan(), old, batch.behaviour_log_probs)


def _engine_weights(args: ObjectiveSide) -> Correction:
    """Weights of trainer over engine, as the flags want them."""
    if args.custom_tis_function_path:
        return custom_tis(load_hook(args, "custom_tis_function_path"), args)
    icepop, older = ICEPOP[args.tis_mode], ONLY_OLDER[args.tis_spans]
    return tis(args.tis_clip_low, args.tis_clip, icepop=icepop, only_older=older)


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
    """What a teacher says of likely ids. Raises ValueError where nobody was asked."""
    if batch.targets is None:
        raise ValueError("a distillation over likely ids needs to know what the teacher says of them")
    return batch.targets


def topk_divergence(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """`reverse_kl_topk` of the batch, as a component."""
    return reverse_kl_topk(dist, targets_of(batch), reducer)


def topk_settings(args: DistillationArguments, subset: SubsetMode) -> dict[str, float]:
    """How likely ids and hints are chosen, as numbers for `LossSpec.reported`.

    Args:
        subset: as in `LossSpec`.
    """
    modes, selections = ("student", "overlap", "teacher"), ("shortest", "token_optimal", "sequence_optimal")
    return {
        "distill_subset_mode_id": float(modes.index(args.distill_subset_mode or subset)),
        "hint_selection_mode_id": float(selections.index(args.hint_selection)),
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
