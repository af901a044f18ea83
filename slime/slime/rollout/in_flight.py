"""Which groups are out: handed to a rollout and neither trained on, dropped nor given back."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from slime.rollout.groups import Group, group_id
from slime.types import Sample

ROLLOUTS_IN_FLIGHT = 4
"""A batch may be saved for as long as this many later ones have been made; loops are one ahead."""


class InFlightGroups:
    """Copies of the groups that are out, as they were handed out, in that order. Not thread-safe."""

    def __init__(self) -> None:
        self.out: dict[int | str, list[Any]] = {}
        self.batch_of: dict[int | str, int] = {}

    def hand_out(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self.out[group_id(group)] = copy.deepcopy(list(group))

    def forget(self, groups: Sequence[Group]) -> None:
        for group in groups:
            index = group_id(group)
            self.out.pop(index, None)
            self.batch_of.pop(index, None)

    def settle(self, rollout_id: int, groups: Sequence[Group]) -> None:
        """The groups are the batch of a rollout; those of much earlier ones need no copy any more."""
        for group in groups:
            index = group_id(group)
            if index in self.out:
                self.batch_of[index] = rollout_id
        for index, number in list(self.batch_of.items()):
            if number <= rollout_id - ROLLOUTS_IN_FLIGHT:
                del self.batch_of[index], self.out[index]

    def outstanding_after(self, rollout_id: int) -> list[list[Any]]:
        """What a run that goes on after `rollout_id` has to be handed again."""
        return [
            group
            for index, group in self.out.items()
            if self.batch_of.get(index, rollout_id + 1) > rollout_id
        ]


def written_groups(groups: Sequence[Group]) -> list[Any]:
    """Groups as JSON data."""
    return [_written(group) for group in groups]


def _written(entry: Any) -> Any:
    return entry.to_dict() if isinstance(entry, Sample) else [_written(part) for part in entry]


def read_groups(written: Sequence[Any]) -> list[list[Any]]:
    """The inverse of `written_groups`."""
    return [[_read(part) for part in group] for group in written]


def _read(entry: Any) -> Any:
    return Sample.from_dict(entry) if isinstance(entry, dict) else [_read(part) for part in entry]
