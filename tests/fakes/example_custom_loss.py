"""A user's loss file as in the documentation: no function name in the flag, and log-prob tensors named logits."""

from typing import Any

import torch


def compute_loss(
    policy_logits: torch.Tensor,
    reference_logits: torch.Tensor,
    rewards: torch.Tensor,
    advantages: torch.Tensor,
    config: dict[str, Any],
) -> torch.Tensor:
    """Returns the clipped ratio to the reference, with a penalty for leaving it."""
    gap = policy_logits - reference_logits
    ratio = torch.exp(gap)
    width = config.get("clip_range", 0.2)
    bounded = torch.clamp(ratio, 1 - width, 1 + width)
    surrogate = torch.min(ratio * advantages, bounded * advantages)
    return -surrogate.mean() + config.get("kl_coeff", 0.01) * gap.mean()
