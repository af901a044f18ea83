"""One optimizer step over the micro-batches of a schedule: forward, backward, checks, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from slime.backends.fsdp.distributed import sum_over_ranks
from slime.backends.fsdp.model import distribution
from slime.backends.fsdp.packing import PackedBatch, pack
from slime.errors import TrainError
from slime.losses import LossBatch, LossSpec, Reducer, compute_loss, weighted_sum
from slime.schedule import MicroBatch, Step
from slime.types import Sample


@dataclass
class RolloutData:
    """What the steps of one rollout share. Log-probs are lists over trained tokens, by sample position.

    `ref_log_probs` is None without a reference model. A sample without `old_log_probs` belongs to a step
    before which
    the policy does not move: its old log-probs are the new ones.
    """

    samples: Sequence[Sample]
    advantages: list[float] | None = None
    ref_log_probs: dict[int, list[float]] | None = None
    old_log_probs: dict[int, list[float]] = field(default_factory=dict)


OnLogProbs = Callable[[MicroBatch, PackedBatch, Tensor], None]


def forward_backward(
    model: Any,
    spec: LossSpec,
    step: Step,
    rank: int,
    data: RolloutData,
    device: torch.device,
    per_token: bool,
    on_log_probs: OnLogProbs,
) -> dict[str, float]:
    """Accumulates the gradient of the step's loss and returns its metrics, both over all ranks.

    FSDP averages gradients over ranks, so each rank's loss is multiplied by their number.
    """
    world_size = len(step.ranks)
    sums: dict[str, float] = {}
    for micro_batch in step.ranks[rank]:
        packed = pack([data.samples[i] for i in micro_batch], device)
        dist = distribution(model, packed)
        batch = loss_batch(micro_batch, packed, data)
        output = compute_loss(spec, dist, batch, step_reducer(step, packed, per_token))
        torch.autograd.backward(output.loss * world_size)
        for name, value in output.metrics.items():
            sums[name] = sums.get(name, 0.0) + float(value)
        on_log_probs(micro_batch, packed, dist.log_probs(packed.targets).detach())
    return sum_over_ranks(sums)


def step_reducer(step: Step, packed: PackedBatch, per_token: bool) -> Reducer:
    """Mean over the trained tokens of the step, or over its samples of the mean over their trained tokens."""
    if per_token:
        return weighted_sum(packed.spread([1.0] * len(packed.counts)), step.num_tokens)
    return weighted_sum(packed.spread([1.0 / count for count in packed.counts]), step.num_samples)


def loss_batch(micro_batch: MicroBatch, packed: PackedBatch, data: RolloutData) -> LossBatch:
    """The inputs of the loss, aligned with the targets of the pack."""
    advantages = None
    if data.advantages is not None:
        advantages = packed.spread([data.advantages[i] for i in micro_batch])
    return LossBatch(
        ids=packed.targets,
        advantages=advantages,
        old_log_probs=_per_token(micro_batch, packed, data.old_log_probs),
        ref_log_probs=_per_token(micro_batch, packed, data.ref_log_probs),
    )


def _per_token(
    micro_batch: MicroBatch, packed: PackedBatch, known: dict[int, list[float]] | None
) -> Tensor | None:
    if known is None or not all(i in known for i in micro_batch):
        return None
    if packed.is_filler:
        return torch.zeros(1, device=packed.targets.device)
    values = [value for i in micro_batch for value in known[i]]
    return torch.tensor(values, dtype=torch.float32, device=packed.targets.device)


@torch.no_grad()
def trained_log_probs(
    model: Any,
    micro_batches: Sequence[MicroBatch],
    samples: Sequence[Sample],
    device: torch.device,
    **how: Any,
) -> dict[int, list[float]]:
    """Log-probs of the samples in `micro_batches`, by position, from the same function as in training."""
    found: dict[int, list[float]] = {}
    for micro_batch in micro_batches:
        packed = pack([samples[i] for i in micro_batch], device, **how)
        log_probs = distribution(model, packed).log_probs(packed.targets)
        found |= by_sample(micro_batch, packed, log_probs)
    return found


def by_sample(micro_batch: MicroBatch, packed: PackedBatch, values: Tensor) -> dict[int, list[float]]:
    """Splits values [T] of a pack into one list a sample."""
    if packed.is_filler:
        return {}
    parts = torch.split(values, list(packed.counts))
    return {i: part.tolist() for i, part in zip(micro_batch, parts, strict=True)}


def clip_and_check(model: Any, loss: float, max_norm: float, where: str) -> float:
    """The gradient's norm over all ranks, after which it is clipped to `max_norm` (0: not at all).

    Raises:
        TrainError: loss or gradient is not finite. Every rank sees the same numbers, so all raise or none.
    """
    if not math.isfinite(loss):
        raise TrainError(f"{where}: the loss is {loss}; the step was refused and nothing of it applied")
    parameters = [p for p in model.parameters() if p.grad is not None]
    total = get_total_norm([p.grad for p in parameters])
    norm = total.full_tensor() if isinstance(total, DTensor) else total
    if not bool(torch.isfinite(norm)):
        raise TrainError(
            f"{where}: the gradient's norm is {float(norm)}; the step was refused and not applied"
        )
    if max_norm > 0:
        clip_grads_with_norm_(parameters, max_norm, norm)
    return float(norm)
