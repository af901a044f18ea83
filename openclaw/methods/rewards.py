"""Rewards for training, computed by comparing scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

TRUST = "trust"
"""Key in a sample's metadata: trust in its person, 0 to 1 (see `openclaw.trainer_hooks.trust`)."""


class RewardFlags(Protocol):
    """The trainer's flags that rewards need."""

    reward_key: str | None


class ScoredSample(Protocol):
    """The fields of the trainer's samples that rewards need."""

    reward: Any
    metadata: Any
    companion: int

    def get_reward_value(self, key: str | None) -> Any: ...


def compare_in_batch(args: RewardFlags, samples: Sequence[ScoredSample]) -> tuple[list[object], list[float]]:
    """For --custom-reward-post-process-path: subtracts from each reward the mean of the rewards in its optimizer
    step, as a baseline.

    Once most turns are liked, rewards of +1 alone would keep reinforcing every answer; relative rewards favour the
    better ones. A reward of 0 means no score and stays 0; a single score is unchanged.

    Args:
        samples: the trainer's; `companion` is the number of their extra step (0: the batch's own).

    Returns:
        Original and relative rewards, one each a sample; the latter are smaller for people with less trust.
    """
    rewards = [float(sample.get_reward_value(args.reward_key)) for sample in samples]
    steps = [sample.companion for sample in samples]
    means = {
        step: _baseline([r for r, own in zip(rewards, steps, strict=True) if r and own == step])
        for step in set(steps)
    }
    compared = [reward and reward - means[step] for reward, step in zip(rewards, steps, strict=True)]
    return [sample.reward for sample in samples], weighed(samples, compared)


def weighed(samples: Sequence[ScoredSample], compared: Sequence[float]) -> list[float]:
    """Returns relative rewards times the trust in each sample's person; 1 if the sample has no trust value."""
    known = [sample.metadata or {} for sample in samples]
    return [reward * float(about.get(TRUST, 1.0)) for reward, about in zip(compared, known, strict=True)]


def cancel_out(post_process: str | None, rewards: Sequence[float]) -> bool:
    """Returns whether the rewards of an optimizer step cancel out: there are no scores, or they are equal and
    `compare_in_batch` compares them (`post_process`: path of the function that does)."""
    scores = [reward for reward in rewards if reward]
    ours = f"{compare_in_batch.__module__}.{compare_in_batch.__qualname__}"
    compared = post_process == ours
    return not scores or (compared and len(scores) > 1 and len(set(scores)) == 1)


def _baseline(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores) if len(scores) > 1 else 0.0
