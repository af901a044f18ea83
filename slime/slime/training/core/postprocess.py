"""--rollout-data-postprocess-path: a last look at, and change of, what a rank is about to train on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from slime.errors import DataError
from slime.hooks import load_hook
from slime.training.core.batch import TrainBatch, widened
from slime.training.schedule import Schedule

if TYPE_CHECKING:
    from slime.flags.hooks import HookArguments

CHANGEABLE = {
    "advantages": "advantages",
    "returns": "returns",
    "log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
}
"""Names in the dictionary, and the field of the data that a change goes to."""


def postprocess(
    args: HookArguments, rollout_id: int, data: TrainBatch, schedule: Schedule, rank: int
) -> None:
    """Calls f(args, rollout_id, rollout_data), whose lists hold one entry a sample of this rank, and takes over what it
    changed of advantages, returns, log_probs (old ones) and ref_log_probs, each [R] or None.

    Raises:
        DataError: a changed list that does not fit its samples.
    """
    hook = load_hook(args, "rollout_data_postprocess_path")
    mine = [i for step in schedule.steps for micro_batch in step.ranks[rank] for i in micro_batch]
    masks = {i: torch.tensor(data.samples[i].mask, dtype=torch.bool) for i in mine}
    given = _dictionary(data, masks)
    before = {name: [None if v is None else v.clone() for v in given[name]] for name in CHANGEABLE}
    hook(args, rollout_id, given)
    for name, field in CHANGEABLE.items():
        after = given.get(name)
        if after is None or _same(before[name], after):
            continue
        setattr(data, field, (getattr(data, field) or {}) | _narrowed(name, after, masks, args))
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
    found: dict[int, Any] = {}
    if len(values) == len(masks):
        for (i, mask), value in zip(masks.items(), values, strict=True):
            if value is None:
                continue
            tensor = torch.as_tensor(value, dtype=torch.float32).cpu()
            if tensor.shape != mask.shape:
                break
            kept = tensor[mask]
            found[i] = kept.tolist() if name in ("log_probs", "ref_log_probs") else kept
        else:
            return found
    raise DataError(
        f"{args.rollout_data_postprocess_path} must leave rollout_data[{name!r}] as one tensor of "
        "response_length numbers a sample"
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
