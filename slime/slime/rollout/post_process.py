"""Applies two hooks between a finished batch and training: changed rewards, or changed training data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slime.errors import DataError
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags.hooks import HookArguments

FIELDS = {
    "rewards": "reward",
    "loss_masks": "loss_mask",
    "rollout_log_probs": "rollout_log_probs",
    "teacher_log_probs": "teacher_log_probs",
    "teacher_topk_log_probs": "teacher_topk_log_probs",
    "teacher_topk_indices": "teacher_topk_indices",
    "group_indices": "group_index",
    "sample_indices": "index",
    "rollout_ids": "rollout_id",
    "temperatures": "temperature",
    "metadata": "metadata",
}
"""slime's names of training data, and the corresponding fields of samples."""
PER_TOKEN = (
    "loss_masks",
    "rollout_log_probs",
    "teacher_log_probs",
    "teacher_topk_log_probs",
    "teacher_topk_indices",
)
KNOWN = {*FIELDS, "tokens", "response_lengths", "total_lengths", "raw_reward", "truncated"}


def post_processed(
    args: HookArguments,
    samples: list[Sample],
    process: Callable[..., Any] | None,
    convert: Callable[..., Any] | None,
) -> list[Sample]:
    """Returns the batch for training.

    Args:
        process, convert: the functions of --custom-reward-post-process-path and of
            --custom-convert-samples-to-train-data-path.

    Raises:
        DataError: a hook's result does not match the samples, or makes a sample inconsistent.
    """
    if process is not None:
        set_rewards(samples, process(args, samples), str(args.custom_reward_post_process_path))
        for sample in samples:
            sample.validate()
    if convert is not None:
        samples = samples_of(convert(args, samples), str(args.custom_convert_samples_to_train_data_path))
    return samples


def set_rewards(samples: Sequence[Sample], returned: object, path: str) -> None:
    """Sets rewards from (raw rewards, rewards), one each per sample; raw ones as `metadata["raw_reward"]`.

    Raises:
        DataError: the hook returned something else.
    """
    if not (isinstance(returned, tuple | list) and len(returned) == 2):
        raise DataError(f"{path} must return (raw rewards, rewards), but returned {type(returned).__name__}")
    raw, rewards = (_listed(values) for values in returned)
    if len(raw) != len(samples) or len(rewards) != len(samples):
        raise DataError(
            f"{path} returned {len(raw)} raw rewards and {len(rewards)} rewards for {len(samples)} samples"
        )
    for sample, before, reward in zip(samples, raw, rewards, strict=True):
        sample.metadata["raw_reward"] = before
        sample.reward = reward
        sample.get_reward_value()


def samples_of(data: object, path: str) -> list[Sample]:
    """Returns samples from training data in slime's format: a dictionary of lists with one entry per sample.

    `tokens` and `response_lengths` are required; rewards are used without normalisation.

    Raises:
        DataError: the format is wrong, a key is unknown, or values are inconsistent.
    """
    if not isinstance(data, Mapping) or not {"tokens", "response_lengths"} <= set(data):
        raise DataError(f"{path} must return a dictionary with tokens and response_lengths")
    if unknown := sorted(set(data) - KNOWN):
        raise DataError(f"{path} returned unknown keys: {', '.join(unknown)}; put such values into metadata")
    count = len(data["tokens"])
    if wrong := [name for name, values in data.items() if values is not None and len(values) != count]:
        raise DataError(f"{path} returned {count} tokens, but lists of other lengths for {', '.join(wrong)}")
    return [_sample(data, i) for i in range(count)]


def _sample(data: Mapping[str, Any], i: int) -> Sample:
    fields: dict[str, Any] = {
        FIELDS[name]: _listed(data[name][i]) if name in PER_TOKEN else data[name][i]
        for name in FIELDS
        if data.get(name) is not None and data[name][i] is not None
    }
    if data.get("raw_reward") is not None:
        fields["metadata"] = {**fields.get("metadata", {}), "raw_reward": data["raw_reward"][i]}
    fields.setdefault("index", i)
    return Sample(
        tokens=_listed(data["tokens"][i]), response_length=int(data["response_lengths"][i]), **fields
    )


def _listed(values: Any) -> list[Any]:
    return list(values.tolist()) if hasattr(values, "tolist") else list(values)
