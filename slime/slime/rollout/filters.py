"""Filters of finished groups, and of the samples of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slime.types import Sample, SampleStatus, flatten

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.rollout import RolloutArguments

SAME = 1e-12  # rewards count as equal up to this difference


@dataclass(frozen=True)
class DynamicFilterOutput:
    """Decision of a dynamic filter about a group.

    Attributes:
        keep: use it for training.
        reason: short reason, for the metrics of dropped groups.
        keep_when_insufficient: keep a dropped group in reserve, for a batch that cannot be filled otherwise.
    """

    keep: bool
    reason: str | None = None
    keep_when_insufficient: bool = False


def as_output(output: object) -> DynamicFilterOutput:
    """Converts a filter's result, which may be a bool."""
    return output if isinstance(output, DynamicFilterOutput) else DynamicFilterOutput(keep=bool(output))


def rewards(args: RolloutArguments, samples: Sequence[Sample]) -> list[float]:
    return [sample.get_reward_value(args.reward_key) for sample in samples]


def check_reward_nonzero_std(
    args: RolloutArguments, samples: Sequence[Sample], **kwargs: object
) -> DynamicFilterOutput:
    """Drops groups whose rewards are all equal, because their normalized advantages would be 0 (DAPO)."""
    values = rewards(args, samples)
    if max(values) - min(values) > SAME:
        return DynamicFilterOutput(keep=True)
    return DynamicFilterOutput(keep=False, reason=f"zero_std_{round(values[0], 1)}")


def prefer_reward_nonzero_std(
    args: RolloutArguments, samples: Sequence[Sample], **kwargs: object
) -> DynamicFilterOutput:
    """Like `check_reward_nonzero_std`, but uses such groups if a batch cannot be filled otherwise."""
    output = check_reward_nonzero_std(args, samples)
    return DynamicFilterOutput(output.keep, output.reason, keep_when_insufficient=True)


def check_not_all_truncated(
    args: Arguments, samples: Sequence[Sample], **kwargs: object
) -> DynamicFilterOutput:
    """Drops groups in which every answer was truncated."""
    cut = all(sample.status is SampleStatus.TRUNCATED for sample in samples)
    return DynamicFilterOutput(keep=not cut, reason="all_truncated" if cut else None)


def remove_truncated(args: Arguments, groups: Sequence[object]) -> None:
    """Excludes truncated answers from training, for `--rollout-sample-filter-path`; they count in their
    group."""
    for sample in flatten(groups):
        sample.remove_sample = sample.remove_sample or sample.status is SampleStatus.TRUNCATED
