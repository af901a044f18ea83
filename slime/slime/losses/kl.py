"""Estimators of KL(policy || reference) from sampled tokens (Schulman, "Approximating KL", 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from slime.losses.formula import Distribution, KLType, LossOutput, Reducer

LOW_VAR_LIMIT = 10.0


def approx_kl(
    log_probs: Tensor, ref_log_probs: Tensor, kind: KLType = "k1", old_log_probs: Tensor | None = None
) -> Tensor:
    """Returns the KL estimate [T] from log-probs [T] of policy and reference; d = log_probs - ref_log_probs.

    k1: d. k2: d^2 / 2. k3: exp(-d) - 1 + d. low_var_kl: k3 clamped to [-10, 10] at the end.

    Args:
        old_log_probs: log-probs of the sampling policy. If set, the estimate is weighted by exp(log_probs -
            old_log_probs), with gradient; its gradient is then unbiased.

    Raises:
        ValueError: the kind is unknown.
    """
    difference = log_probs - ref_log_probs
    if kind == "k1":
        estimate = difference
    elif kind == "k2":
        estimate = difference.square() / 2
    elif kind in ("k3", "low_var_kl"):
        estimate = torch.expm1(-difference) + difference
    else:
        raise ValueError(f"unknown KL estimator {kind!r}; choose k1, k2, k3 or low_var_kl")
    if old_log_probs is not None:
        estimate = torch.exp(log_probs - old_log_probs) * estimate
    if kind == "low_var_kl":
        estimate = estimate.clamp(-LOW_VAR_LIMIT, LOW_VAR_LIMIT)
    return estimate


def kl_loss(
    dist: Distribution,
    ids: Tensor,
    ref_log_probs: Tensor,
    reducer: Reducer,
    kind: KLType = "k1",
    old_log_probs: Tensor | None = None,
) -> LossOutput:
    """Returns the reduced KL of the policy to a frozen reference; `ids` and `ref_log_probs` are [T]. See
    `approx_kl`."""
    loss = reducer(approx_kl(dist.log_probs(ids), ref_log_probs, kind, old_log_probs))
    return LossOutput(loss=loss, metrics={"kl_loss": loss.detach()})
