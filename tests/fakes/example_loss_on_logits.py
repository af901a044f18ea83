"""A custom loss with the signature for logits: the weighted likelihood of every response token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.losses import get_log_probs_and_entropy

if TYPE_CHECKING:
    from slime.arguments import Arguments


def custom_loss(
    args: Arguments, batch: dict[str, Any], logits: Tensor, sum_of_sample_mean: Callable[[Tensor], Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits are [1, N, V]."""
    layout = {name: batch[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
    _, found = get_log_probs_and_entropy(logits, args=args, with_entropy=True, **layout)
    weighted = torch.cat(found["log_probs"]) * torch.cat(batch["advantages"])
    entropy = sum_of_sample_mean(torch.cat(found["entropy"]))
    return -sum_of_sample_mean(weighted) - 0.1 * entropy, {"entropy": entropy}
