"""What a score is worth in training: the same, whoever else speaks.

A score is compared with what its person usually gives: +1 of somebody who is nearly always content teaches little, the
first -1 after many +1 teaches much. `openclaw.methods.rewards.compare_in_batch` compares with whoever else happens to
be in the batch instead, so that one person alone learns otherwise than four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openclaw.methods.rewards import weighed
from openclaw.trainer_hooks.lease import opened_store

WINDOW = 32
"""Scores of a person that are looked back at."""
PRIOR = 4.0
"""Scores of 0 that a person is taken to have given before the first: a first score counts in full, and a few alike do
not yet count nothing."""


def compare_with_person(args: Any, samples: Sequence[Any]) -> tuple[list[Any], list[float]]:
    """For --custom-reward-post-process-path: each reward less its person's baseline.

    The baseline is the sum of the person's last scores before this one over their number and `PRIOR`. It is computed from
    the judgements in the rollout buffer, so it outlives batches and restarts, does not depend on who shares the batch,
    and comes out the same again. A reward of 0 stands for no score and stays 0.

    Args:
        args: `reward_key`, and where the rollout buffer is.
        samples: the trainer's, with `reward`, `get_reward_value` and the `turn_id` in their metadata.

    Returns:
        Rewards as they were, and compared, those of people who are trusted less by as much smaller; one each a sample.

    Raises:
        StoreError: the buffer cannot be used.
    """
    store = opened_store(args)
    found = []
    for sample in samples:
        reward = float(sample.get_reward_value(args.reward_key))
        before = store.people.scores_before(sample.metadata["turn_id"], WINDOW) if reward else []
        found.append(reward and reward - baseline(before))
    return [sample.reward for sample in samples], weighed(samples, found)


def baseline(scores: Sequence[float]) -> float:
    """Mean of a person's scores, drawn to 0 while they are few."""
    return sum(scores) / (len(scores) + PRIOR)
