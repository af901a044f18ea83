"""What scores count for in training, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def compare_in_batch(args: Any, samples: Sequence[Any]) -> tuple[list[Any], list[float]]:
    """For --custom-reward-post-process-path: each reward less the mean of the batch's rewards, a baseline.

    Once most turns please, rewards of +1 alone would go on reinforcing whatever is said; compared with each other they
    teach what pleases more. A reward of 0 stands for no score and stays 0; one score alone stays as it is.

    Args:
        args: has `reward_key`.
        samples: the trainer's, with `reward` and `get_reward_value`.

    Returns:
        Rewards as they were, and compared; one each a sample.
    """
    rewards = [float(sample.get_reward_value(args.reward_key)) for sample in samples]
    scores = [reward for reward in rewards if reward]
    mean = sum(scores) / len(scores) if len(scores) > 1 else 0.0
    return [sample.reward for sample in samples], [reward and reward - mean for reward in rewards]
