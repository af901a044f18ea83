"""Tokens that older weights wrote than those which are about to be updated.

A turn may span weight updates, so this is asked of every version span. Tokens of unknown version count as written
by the present weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slime.training.schedule import Schedule
from slime.types import Sample

if TYPE_CHECKING:
    from slime.arguments.groups.distillation import StalenessArguments


def ages(sample: Sample, version: int) -> list[int]:
    """How many versions before `version` the weights were that wrote each trained token."""
    wide = [0] * sample.response_length
    for written, start, end in sample.version_spans:
        wide[start:end] = [max(version - written, 0)] * (end - start)
    return [age for age, kept in zip(wide, sample.mask, strict=True) if kept]


def weights(sample: Sample, version: int, args: StalenessArguments) -> list[float]:
    """Weight of each trained token in the loss: --stale-weight where it is older than --max-staleness."""
    limit = args.max_staleness
    if limit is None:
        return [1.0] * sample.effective_response_length
    return [args.stale_weight if age > limit else 1.0 for age in ages(sample, version)]


def staleness_metrics(
    samples: Sequence[Sample], schedule: Schedule, version: int, args: StalenessArguments
) -> dict[str, float]:
    """Mean age of the trained tokens and the largest, in versions; the share of older tokens, and how many tokens
    and samples hold some beyond --max-staleness."""
    found = [ages(samples[i], version) for step in schedule.steps for i in step.samples]
    count = max(sum(map(len, found)), 1)
    metrics = {
        "staleness": sum(map(sum, found)) / count,
        "staleness_max": float(max((max(part) for part in found if part), default=0)),
        "older_tokens": sum(age > 0 for part in found for age in part) / count,
    }
    if args.max_staleness is not None:
        beyond = [sum(age > args.max_staleness for age in part) for part in found]
        metrics["stale_tokens"] = float(sum(beyond))
        metrics["stale_samples"] = float(sum(number > 0 for number in beyond))
    return metrics
