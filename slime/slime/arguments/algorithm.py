"""Flags: what is optimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.field import flag


@dataclass
class AlgorithmArguments:
    """Loss and advantages."""

    loss_type: Literal["policy_loss", "sft_loss"] = flag(
        "policy_loss", "clipped policy gradient, or likelihood"
    )
    calculate_per_token_loss: bool = flag(
        False, "every trained token weighs the same; otherwise every sample does, whatever its length"
    )
    advantage_estimator: Literal["grpo"] = flag("grpo", "how rewards become advantages")
    disable_rewards_normalization: bool = flag(False, "the reward itself is the advantage of every token")
    disable_grpo_std_normalization: bool = flag(
        False, "subtract the mean of the group, do not divide by its deviation"
    )
    eps_clip: float = flag(0.2, "the probability ratio is clipped below 1 - this")
    eps_clip_high: float | None = flag(
        None, "the probability ratio is clipped above 1 + this (default: --eps-clip)"
    )
    eps_clip_c: float | None = flag(
        None, "dual clip, above 1: bound of the loss of tokens with negative advantage"
    )
    entropy_coef: float = flag(0.0, "weight of the entropy bonus")
    use_kl_loss: bool = flag(False, "add the divergence from a reference model to the loss")
    kl_loss_coef: float = flag(0.0, "weight of that divergence; at 0 no reference model is loaded")
    kl_loss_type: Literal["k1", "k2", "k3", "low_var_kl"] = flag("k1", "estimator of that divergence")
    use_unbiased_kl: bool = flag(
        False, "weight the estimator by the probability ratio, so its gradient is unbiased"
    )
