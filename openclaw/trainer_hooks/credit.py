"""Reward centring: a score counts as far as it differs from what its person usually gives.

+1 of a person who is nearly always content teaches little, the first -1 after many +1 teaches much. Complaint after
complaint of one person counts less each time (-1, -0.8, -0.67, ...) and never nothing, as an advantage of equal
scores cannot show what would please; their hints go on teaching in full, and the first +1 then counts nearly twice.
`openclaw.methods.rewards.compare_in_batch` compares with the other people of the batch instead, so that a person
alone is learned from differently than four.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.methods.rewards import ScoredSample, weighed
from openclaw.trainer_hooks.pipeline import pipeline_of

WINDOW = 32
"""Last scores of a person that count."""
PRIOR = 4.0
"""Scores of 0 that a person is assumed to have given before the first: a first score counts in full, and a few equal
ones still count."""


def compare_with_person(args: object, samples: Sequence[ScoredSample]) -> tuple[list[object], list[float]]:
    """For --custom-reward-post-process-path: each reward less its person's baseline.

    The baseline is the sum of the person's last scores before this one over their number and `PRIOR`. It is computed from
    the judgements in the rollout buffer, so it outlives batches and restarts, does not depend on who shares the batch,
    and comes out the same again. A reward of 0 stands for no score and stays 0.

    Args:
        args: the trainer's; names `reward_key` and the rollout buffer.
        samples: the trainer's, with `reward`, `get_reward_value` and the `turn_id` in their metadata.

    Returns:
        Rewards as they were, and compared, smaller for people who are trusted less; one each a sample.

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
    """Returns the mean of a person's scores, drawn to 0 while they are few."""
    return sum(scores) / (len(scores) + PRIOR)
