"""From rewards to advantages.

Groups are the samples of one prompt. They are told apart by their group index, never by their position in
the batch, so uneven groups and groups that were cut by a filter are normalised right. A group of one has no
mean to compare with: its advantage is zero under normalisation. Turns that exist once (conversations) are
trained with normalisation off, where the advantage is the reward itself.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence

STD_EPSILON = 1e-6


def group_advantages(
    rewards: Sequence[float], groups: Sequence[Hashable], normalize: bool = True, by_std: bool = True
) -> list[float]:
    """One advantage a sample: reward minus its group's mean, over its deviation (GRPO, Shao et al. 2024).

    Args:
        groups: group of each sample; None stands for a group of its own.
        normalize: False gives the raw rewards.
        by_std: divide by (sample standard deviation + 1e-6) too.

    Raises:
        ValueError: lengths differ.
    """
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards for {len(groups)} group indices")
    if not normalize:
        return [float(reward) for reward in rewards]
    advantages = [0.0] * len(rewards)
    for positions in _members(groups):
        values = [rewards[position] for position in positions]
        if max(values) == min(values):
            continue
        mean = statistics.fmean(values)
        scale = statistics.stdev(values) + STD_EPSILON if by_std else 1.0
        for position in positions:
            advantages[position] = (rewards[position] - mean) / scale
    return advantages


def group_counts(rewards: Sequence[float], groups: Sequence[Hashable]) -> dict[str, float]:
    """How many groups there are, how many of them are one sample, and how many earned the same throughout: these
    two kinds teach nothing under normalisation."""
    values = [[rewards[position] for position in positions] for positions in _members(groups)]
    return {
        "groups": float(len(values)),
        "groups_of_one": float(sum(len(group) == 1 for group in values)),
        "groups_all_equal": float(sum(len(group) > 1 and max(group) == min(group) for group in values)),
    }


def _members(groups: Sequence[Hashable]) -> list[list[int]]:
    """Positions of the samples of each group; None stands for a group of its own."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[("alone", position) if group is None else ("group", group)].append(position)
    return list(members.values())
