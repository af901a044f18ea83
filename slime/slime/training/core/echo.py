"""What somebody else wrote, beside the trained tokens of a pack (--echo-coef)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slime.losses import Distribution, LossOutput, Rows, echo_loss, weighted_sum
from slime.training.core.packing import PackedBatch

if TYPE_CHECKING:
    from slime.flags.loss import LossArguments


@dataclass(frozen=True)
class Others:
    """Tokens that somebody else wrote: their distribution, ids [E], and how many belong to each sample."""

    dist: Distribution
    ids: Tensor
    counts: tuple[int, ...]


def split(packed: PackedBatch, seen: Distribution) -> tuple[PackedBatch, Distribution, Others | None]:
    """The pack and the distribution of its trained tokens, and the others; None where there are none."""
    if not sum(packed.observed):
        return packed, seen, None
    own, ids = packed.apart()
    total, size = len(packed.targets), len(own.targets)
    others = Others(Rows(seen, total, size, total - size), ids, packed.observed)
    return own, Rows(seen, total, 0, size), others


def add(args: LossArguments, output: LossOutput, others: Others | None, denominator: float) -> LossOutput:
    """The loss with `echo_coef` times the cross-entropy of what others wrote.

    With --calculate-per-token-loss its tokens are summed over the trained tokens of the step, else it is the mean over
    samples of the mean over such tokens of each.
    """
    if not args.echo_coef:
        return output
    if others is None:
        return LossOutput(
            output.loss, {**output.metrics, "echo_loss": torch.zeros_like(output.loss.detach())}
        )
    counts = torch.tensor(others.counts, device=others.ids.device)
    weights = torch.ones(len(counts)) if args.calculate_per_token_loss else 1.0 / counts.clamp(min=1)
    reducer = weighted_sum(weights.to(others.ids.device).repeat_interleave(counts), denominator)
    found = echo_loss(others.dist, others.ids, reducer)
    loss = output.loss + args.echo_coef * found.loss
    return LossOutput(loss, {**output.metrics, **found.metrics, "loss": loss.detach()})
