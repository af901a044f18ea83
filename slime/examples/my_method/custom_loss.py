"""A custom loss: the usual start of a new method.

slime calls it on each sample. `policy_logits` and `reference_logits` are log-probs of the sampled tokens, under the
policy and under the reference model; `rewards` is the sample's reward on every token, `advantages` the estimator's
result.
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
    """Returns the policy gradient loss plus the squared distance from the reference model. All tensors are [T]; the
    result is one number.

    `config` has every flag by name, including those of `add_arguments` below.
    """
    policy_gradient = -(advantages * torch.exp(policy_logits - policy_logits.detach())).mean()
    distance = (policy_logits - reference_logits).square().mean()
    return policy_gradient + config["pull"] * distance


def add_arguments(parser: Any) -> None:
    """Adds the method's flags; they appear in --help."""
    parser.add_argument(
        "--pull", type=float, default=0.01, help="weight of the distance from the reference model"
    )
