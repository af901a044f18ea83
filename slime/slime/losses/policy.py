"""Policy gradients: PPO's clip (Schulman 2017) with an upper clip of its own (DAPO, Yu 2025) and the dual clip
(Ye 2020), the sequence ratio of GSPO (Zheng 2025) and the clipped importance weight of CISPO (MiniMax-M1, 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from slime.losses.corrections import Correction, PolicyTerms
from slime.losses.distribution import Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer
from slime.losses.segments import Segments

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
    """max(-r A, -clip(r, 1 - eps_clip, 1 + eps_clip_high) A) with r = exp(new - old log-prob).

    The log of r is held within +-20: an infinite r would make NaN of an advantage of 0.

    Args:
        ids, old_log_probs, advantages: [T]. No old log-probs: the policy has not moved since, they are the
            new ones.
        eps_clip_high: upper clip; `eps_clip` if None.
        eps_clip_c: dual clip, above 1: where A < 0 the loss of a token is at most -eps_clip_c A.
        objective: "gspo": the log of r is the mean of new - old over the sample. "cispo": the loss of a token
            is -clip(r) A log-prob, with no gradient through the clipped r.
        segments: samples of the tokens; GSPO and most corrections need them.
        rollout_log_probs: the engine's [T], for corrections.
        corrections: change the loss of single tokens, in this order.
        pg_reducer: reduces this loss instead of `reducer`, which still reduces the metrics.
        older: [T] of bool, tokens that older weights wrote, for corrections.

    Raises:
        ValueError: for an unknown objective.
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
    """PPO's max(-r A, -clip(r, *limits) A), and 1 where the clip decides; of any shape."""
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
        raise ValueError("the sequence ratio of GSPO needs to know the samples of the tokens")
    return segments


def entropy_loss(dist: Distribution, reducer: Reducer) -> LossOutput:
    """Reduced entropy, in nats, at the sampling temperature; a bonus has a negative weight."""
    entropy = reducer(dist.entropy())
    return LossOutput(loss=entropy, metrics={"entropy": entropy.detach()})
