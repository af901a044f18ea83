"""A micro-batch under a custom loss that works on logits: f(args, batch, logits, sum_of_sample_mean)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.losses import LossOutput, pack_loss, weighted_sum
from slime.losses.formula import DenseDistribution
from slime.training.core.batch import TrainBatch, widened
from slime.training.core.packing import PackedBatch, pack
from slime.training.schedule import MicroBatch
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments

FILLER = Sample(tokens=[0, 0], response_length=1, reward=0.0)


def custom_pack(samples: Sequence[Sample], device: torch.device) -> PackedBatch:
    """The samples one after the other; no sample gives a pack of one that counts nothing."""
    packed = pack(samples or [FILLER], device, share_prompts=False)
    return packed if samples else replace(packed, is_filler=True)


def custom_loss(
    function: Callable[..., object],
    args: Arguments,
    micro_batch: MicroBatch,
    packed: PackedBatch,
    logits: Tensor,
    data: TrainBatch,
    denominator: float,
) -> tuple[LossOutput, Tensor]:
    """Loss and metrics of a pack of `custom_pack` with its raw logits [1, N, V], and the log-probs of its targets [T].

    The function returns sums over samples (tokens with --calculate-per-token-loss); `denominator` is how many
    of them the whole step has.
    """
    samples, device = [data.samples[i] for i in micro_batch] or [FILLER], logits.device
    lengths = torch.tensor(packed.lengths, device=device)
    temperatures = torch.tensor([sample.temperature for sample in samples], device=device)
    logits = logits.float() / temperatures.repeat_interleave(lengths)[:, None]
    batch = custom_batch(samples, micro_batch, packed, data, device)
    masks: list[Tensor] = batch["loss_masks"]
    shares = [mask if args.calculate_per_token_loss else mask / mask.sum().clamp(min=1) for mask in masks]
    loss, metrics = pack_loss(function, args, batch, logits, weighted_sum(torch.cat(shares)))
    scale = 1 / denominator if micro_batch else 0.0
    metrics = {name: value * scale for name, value in metrics.items()}
    loss = loss * scale
    with torch.no_grad():
        log_probs = DenseDistribution(logits[0, packed.logit_positions]).log_probs(packed.targets)
    return LossOutput(loss, {**metrics, "loss": loss.detach()}), log_probs


def custom_batch(
    samples: Sequence[Sample],
    micro_batch: MicroBatch,
    packed: PackedBatch,
    data: TrainBatch,
    device: torch.device,
) -> dict[str, Any]:
    """slime's names; lists hold one entry a sample, per-token ones tensors [R], None for what it does not have."""
    masks = [torch.tensor(sample.mask, dtype=torch.bool) for sample in samples]
    advantages = _wide(masks, micro_batch, data.advantages, device)
    return {
        "tokens": packed.input_ids,
        "unconcat_tokens": [torch.tensor(sample.tokens, device=device) for sample in samples],
        "total_lengths": list(packed.lengths),
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": [mask.float().to(device) for mask in masks],
        "rewards": [sample.reward for sample in samples],
        "advantages": advantages,
        "returns": advantages if data.returns is None else _wide(masks, micro_batch, data.returns, device),
        "values": _wide(masks, micro_batch, data.values, device),
        "log_probs": _wide(masks, micro_batch, data.old_log_probs, device),
        "ref_log_probs": _wide(masks, micro_batch, data.ref_log_probs, device),
        "rollout_log_probs": _given(samples, "rollout_log_probs", device),
        "teacher_log_probs": _given(samples, "teacher_log_probs", device),
        "teacher_topk_log_probs": _given(samples, "teacher_topk_log_probs", device),
        "teacher_topk_indices": _given(samples, "teacher_topk_indices", device),
        "group_indices": [sample.group_index for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "metadata": [sample.metadata for sample in samples],
    }


def _wide(
    masks: Sequence[Tensor],
    micro_batch: MicroBatch,
    known: dict[int, Any] | None,
    device: torch.device,
) -> list[Tensor | None]:
    if not micro_batch:
        return [None if known is None else torch.zeros(len(mask), device=device) for mask in masks]
    found: list[Tensor | None] = []
    for mask, i in zip(masks, micro_batch, strict=True):
        values = None if known is None else known.get(i)
        wide = None if values is None else widened(mask, torch.as_tensor(values, dtype=torch.float32).cpu())
        found.append(None if wide is None else wide.to(device))
    return found


def _given(samples: Sequence[Sample], name: str, device: torch.device) -> list[Tensor | None]:
    values = [getattr(sample, name) for sample in samples]
    return [None if value is None else torch.tensor(value, device=device) for value in values]
