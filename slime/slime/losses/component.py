"""The loss as a weighted sum of components, and the components available to every method.

Policy gradients: PPO's clip (Schulman 2017) with a separate upper clip (DAPO, Yu 2025) and the dual clip (Ye
2020), the sequence ratio of GSPO (Zheng 2025) and the clipped importance weight of CISPO (MiniMax-M1, 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from slime.losses.corrections import Correction, PolicyTerms, corrections_of
from slime.losses.custom import sample_loss
from slime.losses.formula import (
    Distribution,
    KLType,
    LossOutput,
    PolicySettings,
    Reducer,
    Segments,
    settings_of,
)
from slime.losses.kl import kl_loss
from slime.losses.teacher_topk import SubsetMode, TopKTargets

Compute = Callable[[Distribution, "LossBatch", Reducer], LossOutput]
TeacherKind = Literal["sampled", "topk"]


@dataclass(frozen=True)
class LossBatch:
    """The trained response tokens of one micro-batch, all [T]; None for missing values.

    `old_log_probs` is None if the policy has not changed since sampling: they equal the new log-probs, and
    the importance ratio is exactly 1.

    Attributes:
        rewards: raw rewards of the samples [S].
        teacher_log_probs: of the sampled tokens; 0 for tokens without a teacher, for which `taught` (bool) is
            False.
        targets: the teacher's log-probs of its or the student's likely ids [T, K].
        older: bool, tokens sampled by older weights than those before the update.
        behaviour_log_probs: for tokens that are trained again, log-probs under the weights that sampled them,
            used in the ratio of the policy loss; NaN for all others. None: no token is trained again.
        segments: samples of the tokens.
        denominator: number of samples of the whole step, or of tokens with --calculate-per-token-loss.
    """

    ids: Tensor
    advantages: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    rewards: Tensor | None = None
    teacher_log_probs: Tensor | None = None
    taught: Tensor | None = None
    targets: TopKTargets | None = None
    older: Tensor | None = None
    behaviour_log_probs: Tensor | None = None
    segments: Segments | None = None
    denominator: float = 1.0


@dataclass(frozen=True)
class Component:
    """One term of the loss. `weight` 0: only measured, without gradients."""

    name: str
    weight: float
    compute: Compute


@dataclass(frozen=True)
class LossSpec:
    """The loss, and the inputs that it needs.

    Inputs of slime's estimators and regularisers are added by `training.core.objective`.

    Attributes:
        needs_old: needs old log-probs of every step before the first one, for advantages or a custom loss.
        distils: teacher's output that the loss uses: log-probs of the "sampled" tokens, or of the "topk"
            likely ids.
        asks_teacher: False if the distillation term has weight 0: no teacher runs, and its flags may be set.
        subset: whose likely ids are compared if --distill-subset-mode is not set.
        without_hint: treatment of samples without a hint: no distillation, a teacher on the plain prompt, or
            rejection.
        unhinted_rate: factor of the learning rate in a step whose samples have no hint: the weight of rewards relative
            to hints. AdamW's step has the same length at any weight, so the weight alone would have no effect.
        reported: numbers that are added to the metrics of every rollout, such as weights.
        on_logits: a custom loss f(args, batch, logits, sum_of_sample_mean); replaces the components.
    """

    components: tuple[Component, ...] = ()
    needs_advantages: bool = False
    needs_reference: bool = False
    needs_old: bool = False
    needs_rollout_log_probs: bool = False
    distils: TeacherKind | None = None
    asks_teacher: bool = True
    subset: SubsetMode = "student"
    without_hint: Literal["skip", "plain", "refuse"] = "skip"
    unhinted_rate: float = 1.0
    reported: Mapping[str, float] = field(default_factory=dict)
    on_logits: Callable[..., Any] | None = None

    @property
    def teacher(self) -> TeacherKind | None:
        """Returns the kind of teacher output that the loss needs; None: no teacher runs."""
        return self.distils if self.asks_teacher else None


def compute_loss(spec: LossSpec, dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    """Returns the sum of the components, with the metrics of all of them and `loss`.

    Raises:
        ValueError: two components report the same metric.
    """
    total: Tensor | None = None
    metrics: dict[str, Tensor] = {}
    for component in spec.components:
        with torch.set_grad_enabled(torch.is_grad_enabled() and component.weight != 0):
            part = component.compute(dist, batch, reducer)
        if twice := metrics.keys() & part.metrics.keys():
            raise ValueError(
                f"component {component.name!r} repeats the metrics {sorted(twice)} of another component"
            )
        metrics |= part.metrics
        if component.weight != 0:
            weighted = component.weight * part.loss
            total = weighted if total is None else total + weighted
    if total is None:
        raise ValueError("every component of the loss has weight 0")
    return LossOutput(loss=total, metrics=metrics | {"loss": total.detach()})


def policy_component(args: object, clip: tuple[float, float | None] | None = None) -> Compute:
    """Returns the policy component.

    Args:
        args: `PolicySettings`, or the arguments passed to a hook, whose own hooks are loaded.
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
    """Returns the log-probs [T] in the importance ratio's denominator.

    For tokens that are trained again they are those of the weights that sampled them, else the old ones.
    PPO's clip thus bounds the total change of a token over all its trainings. Advantages of a teacher need no
    such bound: they vanish where the policy agrees with it.
    """
    if batch.behaviour_log_probs is None:
        return batch.old_log_probs
    old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    return torch.where(batch.behaviour_log_probs.isnan(), old, batch.behaviour_log_probs)


def _pg_reducer(make: Callable[..., Reducer], per_token: bool, batch: LossBatch) -> Reducer:
    """Returns the reducer of slime's hook f(total_lengths, response_lengths, loss_masks, per_token).

    The hook returns a reducer of [sum of R]. Like slime's own reducers it sums over samples; the result is
    divided by the step's samples.
    """
    segments = batch.segments
    if segments is None:
        raise ValueError("a custom reducer needs the samples of the tokens")
    masks = [mask.float() for mask in segments.masks]
    reduce = make(list(segments.total_lengths), list(segments.response_lengths), masks, per_token)
    return lambda values: reduce(segments.widen(values)) / batch.denominator


def entropy_term(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return entropy_loss(dist, reducer)


def kl_term(
    kind: KLType, unbiased: bool, dist: Distribution, batch: LossBatch, reducer: Reducer
) -> LossOutput:
    if batch.ref_log_probs is None:
        raise ValueError("kl_loss needs the log-probs of a reference model")
    old = None
    if unbiased:
        old = dist.log_probs(batch.ids).detach() if batch.old_log_probs is None else batch.old_log_probs
    return kl_loss(dist, batch.ids, batch.ref_log_probs, reducer, kind, old)


def sft_term(dist: Distribution, batch: LossBatch, reducer: Reducer) -> LossOutput:
    return sft_loss(dist, batch.ids, reducer)


def custom_term(
    function: Callable[..., object],
    config: dict[str, Any],
    dist: Distribution,
    batch: LossBatch,
    reducer: Reducer,
) -> LossOutput:
    """Returns a user's loss on each sample; every token gets its sample's value, so that the reducer weights
    samples."""
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
    """Returns the cross-entropy of `target_ids` [T] under `dist`, in nats.

    Returns:
        The reduced loss, and `sft_loss` as its only metric.
    """
    loss = -reducer(dist.log_probs(target_ids))
    return LossOutput(loss=loss, metrics={"sft_loss": loss.detach()})


Objective = Literal["ppo", "gspo", "cispo"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
LOG_RATIO_LIMIT = 20.0


def policy_loss(
    dist: Distribution,
    ids: Tensor,
    old_log_probs: Tensor | None,
    advantages: Tensor,
    reducer: Reducer,
    eps_clip: float = 0.2,
    eps_clip_high: float | None = None,
    eps_clip_c: float | None = None,
    objective: Objective = "ppo",
    segments: Segments | None = None,
    rollout_log_probs: Tensor | None = None,
    corrections: Sequence[Correction] = (),
    pg_reducer: Reducer | None = None,
    older: Tensor | None = None,
) -> LossOutput:
    """Returns max(-r A, -clip(r, 1 - eps_clip, 1 + eps_clip_high) A) with r = exp(new - old log-prob).

    The log of r is clamped to +-20, because an infinite r times an advantage of 0 is NaN.

    Args:
        ids, old_log_probs, advantages: [T]. Without old log-probs, the new ones are used: the policy has not
            changed.
        eps_clip_high: upper clip; `eps_clip` if None.
        eps_clip_c: dual clip, above 1: if A < 0 the loss of a token is at most -eps_clip_c A.
        objective: "gspo": the log of r is the mean of new - old over the sample. "cispo": the loss of a token
            is -clip(r) A log-prob, without gradient through the clipped r.
        segments: samples of the tokens, for GSPO and most corrections.
        rollout_log_probs: the engine's log-probs [T], for corrections.
        corrections: applied to the loss of tokens, in this order.
        pg_reducer: reduces this loss instead of `reducer`, which still reduces the metrics.
        older: [T] of bool, tokens sampled by older weights, for corrections.

    Raises:
        ValueError: the objective is unknown.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; choose {', '.join(OBJECTIVES)}")
    log_probs = dist.log_probs(ids)
    old = log_probs.detach() if old_log_probs is None else old_log_probs
    log_ratio = log_probs - old
    if objective == "gspo":
        log_ratio = _of_samples(segments).spread(_of_samples(segments).mean(log_ratio))
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    limits = 1 - eps_clip, 1 + (eps_clip if eps_clip_high is None else eps_clip_high)
    if objective == "cispo":
        per_token, hit = _cispo(log_probs, ratio, advantages, limits)
    else:
        per_token, hit = clipped_surrogate(ratio, advantages, limits)
    measured = {"pg_clipfrac": hit, "ppo_kl": -log_ratio, "ois": ratio}
    if eps_clip_c is not None:
        per_token, measured["pg_dual_clipfrac"] = _dual_clip(per_token, advantages, eps_clip_c)
    terms = PolicyTerms(old - log_probs.detach(), old, advantages, rollout_log_probs, segments, older)
    for correct in corrections:
        per_token, extra = correct(per_token, terms)
        measured |= extra
    loss = (pg_reducer or reducer)(per_token)
    metrics = {name: reducer(values).detach() for name, values in measured.items()}
    return LossOutput(loss=loss, metrics={"pg_loss": loss.detach(), **metrics})


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, limits: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Returns PPO's max(-r A, -clip(r, *limits) A), and 1 where the clip is active; any shape."""
    plain, clipped = -ratio * advantages, -ratio.clamp(*limits) * advantages
    return torch.maximum(plain, clipped), (clipped > plain).to(ratio.dtype)


def _cispo(
    log_probs: Tensor, ratio: Tensor, advantages: Tensor, limits: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    weight = ratio.detach().clamp(*limits)
    return -weight * advantages * log_probs, (weight != ratio).to(ratio.dtype)


def _dual_clip(per_token: Tensor, advantages: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    bounded = torch.minimum(-bound * advantages, per_token)
    hit = (advantages < 0) & (bounded < per_token)
    return torch.where(advantages < 0, bounded, per_token), hit.to(per_token.dtype)


def _of_samples(segments: Segments | None) -> Segments:
    if segments is None:
        raise ValueError("the sequence ratio of GSPO needs the samples of the tokens")
    return segments


def entropy_loss(dist: Distribution, reducer: Reducer) -> LossOutput:
    """Returns the reduced entropy, in nats, at the sampling temperature; a bonus has a negative weight."""
    entropy = reducer(dist.entropy())
    return LossOutput(loss=entropy, metrics={"entropy": entropy.detach()})
