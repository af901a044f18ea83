"""What custom losses use to get from the logits of a pack to the response tokens of its samples.

The logits that slime hands to a custom loss are divided by the sampling temperature of their sample already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from slime.losses.distribution import DenseDistribution


def get_responses(
    logits: Tensor,
    *,
    args: object,
    unconcat_tokens: Sequence[Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits [R, V] that predict the response, its tokens [R]) of every sample of a pack with logits [1, N, V]."""
    end = 0
    for tokens, total, response in zip(unconcat_tokens, total_lengths, response_lengths, strict=True):
        end += total
        yield logits[0, end - response - 1 : end - 1], tokens[total - response :]


def get_log_probs_and_entropy(
    logits: Tensor,
    *,
    args: object,
    unconcat_tokens: Sequence[Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    with_entropy: bool = False,
    **_: object,
) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """An empty tensor (slime's second loss output), and "log_probs" (and "entropy"): [R] for every sample."""
    found: dict[str, list[Tensor]] = {"log_probs": [], **({"entropy": []} if with_entropy else {})}
    layout = {"unconcat_tokens": unconcat_tokens, "total_lengths": total_lengths}
    for chunk, tokens in get_responses(logits, args=args, response_lengths=response_lengths, **layout):  # type: ignore[arg-type]
        dist = DenseDistribution(chunk)
        found["log_probs"].append(dist.log_probs(tokens))
        if with_entropy:
            found["entropy"].append(dist.entropy())
    return torch.empty(0, device=logits.device), found
