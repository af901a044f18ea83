"""Samples of one trajectory: a generate function may answer one prompt with several samples, such as one a turn.

They share the group and the index of the sample that was asked for. What is compared, counted or averaged is the
trajectory, however many samples it was written in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from slime.types import Sample


def trajectories_of(samples: Iterable[Sample]) -> list[Hashable]:
    """The trajectory of each sample: samples of the same group and index share one, and one
    without an index is alone."""
    return [
        ("alone", position) if sample.index is None else (sample.group_index, sample.index)
        for position, sample in enumerate(samples)
    ]


def by_trajectory(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each trajectory, in the order of the first of each."""
    found: dict[Hashable, list[Sample]] = defaultdict(list)
    for sample, trajectory in zip(samples, trajectories_of(samples), strict=True):
        found[trajectory].append(sample)
    return list(found.values())
