"""What scores count for in training, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TRUST = "trust"
"""In a sample's metadata: how far its person is trusted, 0 to 1 (see `openclaw.trainer_hooks.trust`)."""


def compare_in_batch(args: Any, samples: Sequence[Any]) -> tuple[list[Any], list[float]]:
    """For --custom-reward-post-process-path: each reward less the mean of the rewards in its optimizer step, a baseline.

    Once most turns please, rewards of +1 alone would go on reinforcing whatever is said; compared with each other they
    teach what pleases more. A reward of 0 stands for no score and stays 0; one score alone stays as it is.

    Args:
        args: has `reward_key`.
        samples: the trainer's, with `reward` and `get_reward_value`; `companion` says which step behind the batch's is
            theirs (0 or none: the batch's own).

    Returns:
        Rewards as they were, and compared, those of people who are trusted less by as much smaller; one each a sample.
    """
    rewards = [float(sample.get_reward_value(args.reward_key)) for sample in samples]
    steps = [getattr(sample, "companion", 0) for sample in samples]
    means = {
        step: _baseline([r for r, own in zip(rewards, steps, strict=True) if r and own == step])
        for step in set(steps)
    }
    compared = [reward and reward - means[step] for reward, step in zip(rewards, steps, strict=True)]
    return [sample.reward for sample in samples], weighed(samples, compared)


def weighed(samples: Sequence[Any], compared: Sequence[float]) -> list[float]:
    """Compared rewards, each as far as its sample's person is trusted; in full where nothing tells."""
    known = [getattr(sample, "metadata", None) or {} for sample in samples]
    return [reward * float(about.get(TRUST, 1.0)) for reward, about in zip(compared, known, strict=True)]


def cancel_out(args: Any, rewards: Sequence[float]) -> bool:
    """Whether nothing is left of the rewards of an optimizer step: none is a score, or `compare_in_batch` compares them
    and they are alike."""
    scores = [reward for reward in rewards if reward]
    ours = f"{compare_in_batch.__module__}.{compare_in_batch.__qualname__}"
    compared = args.custom_reward_post_process_path == ours
    return not scores or (compared and len(scores) > 1 and len(set(scores)) == 1)


def _baseline(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores) if len(scores) > 1 else 0.0
