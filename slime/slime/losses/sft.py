"""Supervised fine-tuning: the negative log-likelihood of given tokens."""

from __future__ import annotations

from torch import Tensor

from slime.losses.distribution import Distribution
from slime.losses.output import LossOutput
from slime.losses.reducers import Reducer


def sft_loss(dist: Distribution, target_ids: Tensor, reducer: Reducer) -> LossOutput:
    """Cross-entropy of `target_ids` [T] under `dist`, in nats.

    Returns:
        The reduced loss, and `sft_loss` as its only metric.
    """
    loss = -reducer(dist.log_probs(target_ids))
    return LossOutput(loss=loss, metrics={"sft_loss": loss.detach()})
