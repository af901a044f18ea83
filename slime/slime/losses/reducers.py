"""From one number a token to one number a step, with denominators that the scheduler knows beforehand.

A reducer sums weighted tokens and never divides by what happens to be in its micro-batch. So the sum over all
micro-batches and ranks of a step is the step's value, however its samples were packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Reducer = Callable[[Tensor], Tensor]


def weighted_sum(weights: Tensor, denominator: float = 1.0) -> Reducer:
    """Reducer of x [T] to sum(x * weights) / denominator. Tokens of weight 0 never count, not even NaN.

    Raises:
        ValueError: if the denominator is not positive.
    """
    if denominator <= 0:
        raise ValueError(f"the denominator of a loss must be positive, got {denominator}")

    def reduce(values: Tensor) -> Tensor:
        kept = torch.where(weights != 0, values, torch.zeros_like(values))
        return (kept * weights.to(values.dtype)).sum() / denominator

    return reduce


def sample_mean_weights(loss_masks: Sequence[Tensor]) -> Tensor:
    """Token weights [sum of lengths] under which every sample counts as the mean over its own trained tokens.

    A sample without trained tokens weighs nothing.
    """
    return torch.cat([mask.float() / max(float(mask.sum()), 1.0) for mask in loss_masks])


def sample_mean(loss_masks: Sequence[Tensor], num_samples: float) -> Reducer:
    """Mean over samples of the mean over trained tokens; `num_samples` counts the whole step, all ranks."""
    return weighted_sum(sample_mean_weights(loss_masks), num_samples)


def token_mean(loss_masks: Sequence[Tensor], num_tokens: float) -> Reducer:
    """Mean over trained tokens; `num_tokens` counts the whole step, all ranks."""
    return weighted_sum(torch.cat([mask.float() for mask in loss_masks]), num_tokens)
