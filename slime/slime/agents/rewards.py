"""The reward of an episode: outcome + coefficient x score of a step, for all of it and for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EpisodeReward:
    """The mean of `steps` is `total`, where there are any.

    Attributes:
        total: of the whole episode.
        steps: of each step.
        step_mean: mean score of the steps that have one; None where none has.
    """

    total: float
    steps: list[float]
    step_mean: float | None


def compose(outcome: float, scores: Sequence[float | None], coef: float) -> EpisodeReward:
    """Both forms of one formula. A step without a score, such as one that no judge answered, counts as the mean of the
    others: it is neither good nor bad."""
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else None
    neutral = mean or 0.0
    steps = [outcome + coef * (neutral if score is None else score) for score in scores]
    return EpisodeReward(outcome + coef * neutral, steps, mean)
