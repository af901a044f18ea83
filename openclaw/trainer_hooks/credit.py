"""Reward centring: a score counts by its difference from the person's usual score.

+1 of a person who is nearly always satisfied teaches little, the first -1 after many +1 teaches much. Each further
complaint of one person counts less (-1, -0.8, -0.67, ...) but never nothing, because the advantages of equal scores
cannot show what would be liked; their hints still count in full, and the first +1 then counts nearly twice.
`openclaw.methods.rewards.compare_in_batch` instead compares with the other people of the batch, so that results
depend on who shares it.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.methods.rewards import ScoredSample, weighed
from openclaw.trainer_hooks.pipeline import pipeline_of

WINDOW = 32
"""Number of a person's last scores that count."""
PRIOR = 4.0
"""Number of scores of 0 assumed before a person's first: a first score counts in full, and a few equal ones still
count."""


def compare_with_person(args: object, samples: Sequence[ScoredSample]) -> tuple[list[object], list[float]]:
    """For --custom-reward-post-process-path: subtracts the person's baseline from each reward.

    The baseline is the sum of the person's previous scores divided by their number plus `PRIOR`. It is computed from
    the judgements in the rollout buffer, so it survives restarts, does not depend on who shares the batch, and is
    reproducible. A reward of 0 means no score and stays 0.

    Args:
        args: the trainer's; names `reward_key` and the rollout buffer.
        samples: the trainer's, with `reward`, `get_reward_value` and the `turn_id` in their metadata.

    Returns:
        Original and relative rewards, one each a sample; the latter are smaller for people with less trust.

    Raises:
        StoreError: the buffer cannot be used.
    """
    pipeline = pipeline_of(args)
    key = pipeline.settings.trainer.reward_key
    scores = []
    for sample in samples:
        reward = float(sample.get_reward_value(key))
        before = pipeline.store.people.scores_before(sample.metadata["turn_id"], WINDOW) if reward else []
        scores.append(reward and reward - baseline(before))
    return [sample.reward for sample in samples], weighed(samples, scores)


def baseline(scores: Sequence[float]) -> float:
    """Returns the mean of a person's scores, shrunk to 0 while they are few."""
    return sum(scores) / (len(scores) + PRIOR)
