"""A loss of one's own: what a new method usually starts with.

slime calls it on each sample. The two that are called logits are log-probs of the sampled tokens, under the policy and
under the reference model; `rewards` is the reward of the sample on every token, `advantages` what the estimator
made of it.
"""

from __future__ import annotations

from typing import Any

import torch


def compute_loss(
    policy_logits: torch.Tensor,
    reference_logits: torch.Tensor,
    rewards: torch.Tensor,
    advantages: torch.Tensor,
    config: dict[str, Any],
) -> torch.Tensor:
    """Policy gradient, plus the squared distance from the reference model. All tensors are [T]; the result is one number.

    `config` has every flag by its name, and those that `add_arguments` below brings.
    """
    policy_gradient = -(advantages * torch.exp(policy_logits - policy_logits.detach())).mean()
    distance = (policy_logits - reference_logits).square().mean()
    return policy_gradient + config["pull"] * distance


def add_arguments(parser: Any) -> None:
    """Flags of the method; they appear in --help."""
    parser.add_argument(
        "--pull", type=float, default=0.01, help="weight of the distance from the reference model"
    )
