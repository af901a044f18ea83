"""A group: the samples of one prompt. A generate function may answer one sample with several (a list)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from slime.errors import DataError
from slime.types import Sample, SampleStatus

Group: TypeAlias = Sequence[Any]
"""n_samples_per_prompt entries, each a Sample or a list of Samples."""

DONE = (SampleStatus.COMPLETED, SampleStatus.TRUNCATED)
FAILURE = "failure"
ATTEMPTS = "rollout_attempts"


def flatten(groups: Any) -> Iterator[Sample]:
    """The samples in lists of any depth, in order."""
    if isinstance(groups, Sample):
        yield groups
        return
    for group in groups:
        yield from flatten(group)


def group_id(group: Group) -> int | str:
    """The group index of its samples. Raises DataError if it has none or several."""
    found = {sample.group_index for sample in flatten(group)}
    if len(found) != 1 or None in found:
        raise DataError(
            f"the samples of a group must share one group_index, these have {sorted(map(str, found))}"
        )
    (index,) = found
    assert index is not None
    return index


def is_done(sample: Sample) -> bool:
    return sample.status in DONE


def fresh(sample: Sample) -> Sample:
    """The sample as it was before anything was generated."""
    metadata = {
        name: value for name, value in sample.metadata.items() if name not in (FAILURE, "start_rollout_id")
    }
    return Sample(
        group_index=sample.group_index,
        index=sample.index,
        session_id=sample.session_id,
        prompt=copy.deepcopy(sample.prompt),
        label=copy.deepcopy(sample.label),
        metadata=copy.deepcopy(metadata),
        generate_function_path=sample.generate_function_path,
        custom_rm_path=sample.custom_rm_path,
    )


def to_retry(group: Group, keep_partial: bool) -> list[Any]:
    """The group with what is finished as it is, and the rest to be generated again.

    Args:
        keep_partial: an interrupted answer is continued; otherwise it starts again.
    """
    return [_entry_to_retry(entry, keep_partial) for entry in group]


def _entry_to_retry(entry: object, keep_partial: bool) -> Any:
    samples = list(flatten(entry))
    if all(map(is_done, samples)):
        return entry
    if isinstance(entry, Sample) and entry.status is SampleStatus.ABORTED and keep_partial:
        return entry
    return fresh(samples[0])


def statuses(group: Group) -> set[SampleStatus]:
    return {sample.status for sample in flatten(group)}


def has_bad_reward(group: Group, reward_key: str | None) -> bool:
    """Whether a reward of the group is there and is not a finite number."""
    return any(
        not _is_finite(sample.reward, reward_key) for sample in flatten(group) if sample.reward is not None
    )


def _is_finite(reward: object, key: str | None) -> bool:
    value = reward.get(key) if isinstance(reward, dict) and key is not None else reward
    return not isinstance(value, float) or math.isfinite(value)


def rewards_of(samples: Iterable[Sample], reward_key: str | None) -> list[float]:
    """The rewards that are finite numbers; the trainer decides whether a missing one matters."""
    found = []
    for sample in samples:
        try:
            found.append(sample.get_reward_value(reward_key))
        except DataError:
            continue
    return found
