"""Converts samples to slime's names for users' functions, and applies the functions' changes.

* A custom loss on logits: f(args, batch, logits, sum_of_sample_mean).
* --rollout-data-postprocess-path: inspects or changes a rank's data before training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.errors import DataError
from slime.hooks import load_hook
from slime.losses import LossOutput, pack_loss, weighted_sum
from slime.losses.dense import DenseDistribution
from slime.training.core.batch import TrainBatch, widened
from slime.training.core.packing import PackedBatch, pack
from slime.training.schedule import MicroBatch, Schedule
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.hooks import HookArguments

FILLER = Sample(tokens=[0, 0], response_length=1, reward=0.0)


def custom_pack(samples: Sequence[Sample], device: torch.device) -> PackedBatch:
    """Concatenates the samples without sharing prefixes; an empty list gives a pack of one token with weight 0."""
    packed = pack(samples or [FILLER], device, merge=False)
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
    """Returns loss and metrics of a `custom_pack` with raw logits [1, N, V], and log-probs of its targets
    [T].

    The user's function returns sums over samples (tokens with --calculate-per-token-loss); `denominator` is
    their number in the whole step.
    """
    samples, device = [data.samples[i] for i in micro_batch] or [FILLER], logits.device
    lengths = torch.tensor(packed.lengths, device=device)
    temperatures = torch.tensor([sample.temperature for sample in samples], device=device)
    logits = logits.float() / temperatures.repeat_interleave(lengths)[:, None]
    batch = custom_batch(samples, micro_batch, packed, data, device)
    masks: list[Tensor] = batch["loss_masks"]
    shares = [mask if args.calculate_per_token_loss else mask / mask.sum().clamp(min=1) for mask in masks]
    shares = [share * sample.loss_weight for share, sample in zip(shares, samples, strict=True)]
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
    """Returns a batch under slime's names.

    Lists have one entry per sample; per-token values are tensors [R]; missing values are None.
    """
    masks = [torch.tensor(sample.mask, dtype=torch.bool) for sample in samples]
    advantages = _of_batch(masks, micro_batch, data.advantages, device)
    return {
        "tokens": packed.input_ids,
        "unconcat_tokens": [torch.tensor(sample.tokens, device=device) for sample in samples],
        "total_lengths": list(packed.lengths),
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": [mask.float().to(device) for mask in masks],
        "rewards": [sample.reward for sample in samples],
        "advantages": advantages,
        "returns": advantages
        if data.returns is None
        else _of_batch(masks, micro_batch, data.returns, device),
        "values": _of_batch(masks, micro_batch, data.values, device),
        "log_probs": _of_batch(masks, micro_batch, data.old_log_probs, device),
        "ref_log_probs": _of_batch(masks, micro_batch, data.ref_log_probs, device),
        "rollout_log_probs": _optional_tensors(samples, "rollout_log_probs", device),
        "teacher_log_probs": _optional_tensors(samples, "teacher_log_probs", device),
        "teacher_topk_log_probs": _optional_tensors(samples, "teacher_topk_log_probs", device),
        "teacher_topk_indices": _optional_tensors(samples, "teacher_topk_indices", device),
        "group_indices": [sample.group_index for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "metadata": [sample.metadata for sample in samples],
    }


def _of_batch(
    masks: Sequence[Tensor],
    micro_batch: MicroBatch,
    by_position: dict[int, Any] | None,
    device: torch.device,
) -> list[Tensor | None]:
    if not micro_batch:
        return [None if by_position is None else torch.zeros(len(mask), device=device) for mask in masks]
    per_sample: list[Tensor | None] = []
    for mask, i in zip(masks, micro_batch, strict=True):
        values = None if by_position is None else by_position.get(i)
        wide = None if values is None else widened(mask, torch.as_tensor(values, dtype=torch.float32).cpu())
        per_sample.append(None if wide is None else wide.to(device))
    return per_sample


def _optional_tensors(samples: Sequence[Sample], name: str, device: torch.device) -> list[Tensor | None]:
    values = [getattr(sample, name) for sample in samples]
    return [None if value is None else torch.tensor(value, device=device) for value in values]


CHANGEABLE = {
    "advantages": "advantages",
    "returns": "returns",
    "log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
}
"""Names of the dictionary that a user's function may change, and the corresponding fields of the data."""


def postprocess(
    args: HookArguments, rollout_id: int, data: TrainBatch, schedule: Schedule, rank: int
) -> None:
    """Calls f(args, rollout_id, rollout_data), whose lists have one entry per sample of this rank.

    Changes of advantages, returns, log_probs (old ones) and ref_log_probs are applied, each [R] or None.

    Raises:
        DataError: a changed list does not match its samples.
    """
    hook = load_hook(args, "rollout_data_postprocess_path")
    positions = [i for step in schedule.steps for micro_batch in step.plain(rank) for i in micro_batch]
    masks = {i: torch.tensor(data.samples[i].mask, dtype=torch.bool) for i in positions}
    fields = _dictionary(data, masks)
    before = {name: [None if v is None else v.clone() for v in fields[name]] for name in CHANGEABLE}
    hook(args, rollout_id, fields)
    for name, field in CHANGEABLE.items():
        changed = fields.get(name)
        if changed is None or _same(before[name], changed):
            continue
        setattr(data, field, (getattr(data, field) or {}) | _narrowed(name, changed, masks, args))
        if name == "log_probs":
            data.ratio_one = frozenset()


def _dictionary(data: TrainBatch, masks: dict[int, Any]) -> dict[str, Any]:
    samples = [data.samples[i] for i in masks]
    wide = {
        name: [_wide(mask, (getattr(data, field) or {}).get(i)) for i, mask in masks.items()]
        for name, field in CHANGEABLE.items()
    }
    return wide | {
        "tokens": [torch.tensor(sample.tokens) for sample in samples],
        "total_lengths": [len(sample.tokens) for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": [mask.float() for mask in masks.values()],
        "raw_reward": [sample.reward for sample in samples],
        "rollout_log_probs": [_tensor(sample.rollout_log_probs) for sample in samples],
        "teacher_log_probs": [_wide(mask, data.teacher_of(i)) for i, mask in masks.items()],
        "group_indices": [sample.group_index for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "metadata": [sample.metadata for sample in samples],
    }


def _narrowed(name: str, values: Any, masks: dict[int, Any], args: HookArguments) -> dict[int, Any]:
    narrowed: dict[int, Any] = {}
    if len(values) == len(masks):
        for (i, mask), value in zip(masks.items(), values, strict=True):
            if value is None:
                continue
            tensor = torch.as_tensor(value, dtype=torch.float32).cpu()
            if tensor.shape != mask.shape:
                break
            kept = tensor[mask]
            narrowed[i] = kept.tolist() if name in ("log_probs", "ref_log_probs") else kept
        else:
            return narrowed
    raise DataError(
        f"{args.rollout_data_postprocess_path} must set rollout_data[{name!r}] to one tensor of "
        "response_length numbers per sample"
    )


def _same(before: list[Any], after: Any) -> bool:
    return len(before) == len(after) and all(
        (a is None and b is None)
        or (a is not None and b is not None and torch.equal(a, torch.as_tensor(b, dtype=a.dtype)))
        for a, b in zip(before, after, strict=True)
    )


def _wide(mask: Any, values: Any) -> Any:
    return widened(mask, None if values is None else torch.as_tensor(values, dtype=torch.float32).cpu())


def _tensor(values: object) -> Any:
    return None if values is None else torch.tensor(values)
