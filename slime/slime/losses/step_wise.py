"""Rewards of an agent's steps: the position of each step in the response, and its reward.

`metadata["step_wise"]` of a sample holds `step_scores` (or `step_scores_with_outcome`, which wins),
`step_token_spans` ([start, end) of each step in the response) and `step_indices` (if missing: counted on from the
samples before it in its trajectory). A sample without spans is one step, from its first to its last trained token,
with its only score, or else the sample's reward.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slime.errors import DataError
from slime.types import Sample, trajectories_of

STD_EPSILON = 1e-6
"""Added to every standard deviation that divides rewards."""


@dataclass(frozen=True)
class Span:
    """One step: response tokens [start, end), its number in the episode and its reward."""

    start: int
    end: int
    index: int
    reward: float


def steps_of(samples: Sequence[Sample], reward_key: str | None) -> list[tuple[Span, ...]]:
    """Returns the steps of each sample; numbered over all samples of a trajectory. Raises DataError as `spans_of`."""
    before: dict[Hashable, int] = defaultdict(int)
    steps = []
    for sample, trajectory in zip(samples, trajectories_of(samples), strict=True):
        steps.append(spans_of(sample, reward_key, before[trajectory]))
        before[trajectory] += max(len(steps[-1]), 1)
    return steps


def spans_of(sample: Sample, reward_key: str | None, first: int = 0) -> tuple[Span, ...]:
    """Returns the steps of a sample.

    Args:
        first: number of its first step where it names none.

    Raises:
        DataError: scores, spans and indices that do not fit together or leave the response.
    """
    step_wise = sample.metadata.get("step_wise") or {}
    scores = step_wise.get("step_scores_with_outcome") or step_wise.get("step_scores") or []
    spans = step_wise.get("step_token_spans") or []
    if not spans and len(scores) < 2:
        trained = [t for t, kept in enumerate(sample.mask) if kept]
        if not trained:
            return ()
        spans = [(trained[0], trained[-1] + 1)]
        scores = scores or [sample.get_reward_value(reward_key)]
    indices = step_wise.get("step_indices") or list(range(first, first + len(scores)))
    if not len(scores) == len(spans) == len(indices):
        raise DataError(
            f"sample {sample.index!r}: {len(scores)} step scores, {len(spans)} step_token_spans and "
            f"{len(indices)} step_indices; there must be one of each a step"
        )
    return tuple(_span(sample, *step) for step in zip(spans, indices, scores, strict=True))


def _span(sample: Sample, span: Sequence[int], index: int, score: Any) -> Span:
    start, end = span
    if not 0 <= start < end <= sample.response_length:
        raise DataError(
            f"sample {sample.index!r}: step_token_span [{start}, {end}) leaves the response of "
            f"{sample.response_length} tokens"
        )
    return Span(int(start), int(end), int(index), replace(sample, reward=score).get_reward_value())


def normalized_spans(
    samples: Sequence[Sequence[Span]], groups: Sequence[Hashable], normalize: bool = True
) -> list[tuple[Span, ...]]:
    """Returns steps with rewards relative to the same step in the same group: (r - mean) / (deviation + 1e-6).

    The deviation is the population's. A single step keeps its reward; equal rewards become 0.
    """
    if not normalize:
        return [tuple(spans) for spans in samples]
    keys = [
        [_bucket(position, group, span) for span in spans]
        for position, (spans, group) in enumerate(zip(samples, groups, strict=True))
    ]
    buckets: dict[Hashable, list[float]] = defaultdict(list)
    for spans, names in zip(samples, keys, strict=True):
        for span, name in zip(spans, names, strict=True):
            buckets[name].append(span.reward)
    return [
        tuple(
            replace(s, reward=_compared(s.reward, buckets[name]))
            for s, name in zip(spans, names, strict=True)
        )
        for spans, names in zip(samples, keys, strict=True)
    ]


def _bucket(position: int, group: Hashable, span: Span) -> Hashable:
    return ("alone", position, span.index) if group is None else ("group", group, span.index)


def _compared(reward: float, others: Sequence[float]) -> float:
    if len(others) == 1:
        return reward
    if max(others) == min(others):
        return 0.0
    return (reward - statistics.fmean(others)) / (statistics.pstdev(others) + STD_EPSILON)
