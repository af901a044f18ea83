"""Clipped policy gradient: PPO (Schulman 2017), separate upper clip (DAPO, Yu 2025), dual clip (Ye 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from slime.losses.distribution import Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer


def policy_loss(
    dist: Distribution,
    ids: Tensor,
    old_log_probs: Tensor | None,
    advantages: Tensor,
    reducer: Reducer,
    eps_clip: float = 0.2,
    eps_clip_high: float | None = None,
    eps_clip_c: float | None = None,
) -> LossOutput:
    """max(-r A, -clip(r, 1 - eps_clip, 1 + eps_clip_high) A) with r = exp(new - old log-prob).

    Args:
        ids, old_log_probs, advantages: [T]. No old log-probs: the policy has not moved since, they are the
            new ones.
        eps_clip_high: upper clip; `eps_clip` if None.
        eps_clip_c: dual clip, above 1: where A < 0 the loss of a token is at most -eps_clip_c A.
    """
    log_probs = dist.log_probs(ids)
    old = log_probs.detach() if old_log_probs is None else old_log_probs
    log_ratio = log_probs - old
    ratio = log_ratio.exp()
    high = eps_clip if eps_clip_high is None else eps_clip_high
    plain = -ratio * advantages
    clipped = -ratio.clamp(1 - eps_clip, 1 + high) * advantages
    per_token = torch.maximum(plain, clipped)
    metrics = {"pg_clipfrac": reducer((clipped > plain).to(ratio.dtype))}
    if eps_clip_c is not None:
        bounded = torch.minimum(-eps_clip_c * advantages, per_token)
        hit = (advantages < 0) & (bounded < per_token)
        per_token = torch.where(advantages < 0, bounded, per_token)
        metrics["pg_dual_clipfrac"] = reducer(hit.to(ratio.dtype))
    loss = reducer(per_token)
    metrics |= {"pg_loss": loss, "ppo_kl": reducer(-log_ratio), "ois": reducer(ratio)}
    return LossOutput(loss=loss, metrics={name: value.detach() for name, value in metrics.items()})


def entropy_loss(dist: Distribution, reducer: Reducer) -> LossOutput:
    """Reduced entropy, in nats, at the sampling temperature; a bonus has a negative weight."""
    entropy = reducer(dist.entropy())
    return LossOutput(loss=entropy, metrics={"entropy": entropy.detach()})
