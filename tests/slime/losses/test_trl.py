"""Compares the losses with those of TRL 1.16's GRPOTrainer (`_compute_loss`), written from its formulas on padded [B,
R] tensors, on the same logits without padding. Values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from slime.losses import (
    DenseDistribution,
    Segments,
    group_advantages,
    kl_loss,
    policy_loss,
    sample_mean,
    token_mean,
)

LENGTHS = (5, 2, 7, 1)
REWARDS = [1.0, 0.0, 0.5, 0.25]
V = 13
LOW, HIGH, BETA = 0.2, 0.28, 0.05


@pytest.fixture
def case() -> dict[str, Tensor]:
    torch.manual_seed(3)
    longest = max(LENGTHS)
    shape = len(LENGTHS), longest
    mask = torch.tensor([[float(t < n) for t in range(longest)] for n in LENGTHS], dtype=torch.float64)
    logits = (torch.randn(*shape, V, dtype=torch.float64) * 2).requires_grad_()
    ids = torch.randint(0, V, shape)
    log_probs = torch.log_softmax(logits, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    old = (log_probs - 0.4 * torch.randn(*shape)).detach()
    ref = (log_probs - 0.5 * torch.randn(*shape)).detach()
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    return {
        "mask": mask,
        "logits": logits,
        "ids": ids,
        "log_probs": log_probs,
        "old": old,
        "ref": ref,
        "a": advantages,
    }


def trl_loss(case: dict[str, Tensor], loss_type: str, level: str) -> Tensor:
    mask, advantages = case["mask"], case["a"].unsqueeze(1)
    log_ratio = case["log_probs"] - case["old"]
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    coef_1 = torch.exp(log_ratio)
    gap = case["ref"] - case["log_probs"]
    per_token_kl = torch.exp(gap) - gap - 1
    if loss_type == "cispo":
        per_token = -torch.clamp(coef_1, max=1 + HIGH).detach() * advantages * case["log_probs"]
    else:
        coef_2 = torch.clamp(coef_1, 1 - LOW, 1 + HIGH)
        per_token = -torch.min(coef_1 * advantages, coef_2 * advantages)
    per_token = per_token + BETA * per_token_kl
    if loss_type == "grpo":
        return ((per_token * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    return (per_token * mask).sum() / mask.sum().clamp(min=1.0)  # bnpo; cispo and dapo in one batch


@pytest.mark.parametrize(
    ("loss_type", "level", "objective"),
    [
        ("grpo", "token", "ppo"),
        ("bnpo", "token", "ppo"),
        ("grpo", "sequence", "gspo"),
        ("cispo", "token", "cispo"),
    ],
)
def test_losses_and_gradients_are_those_of_trl(
    case: dict[str, Tensor], loss_type: str, level: str, objective: Any
) -> None:
    kept = case["mask"].bool()
    masks = [torch.ones(n, dtype=torch.bool) for n in LENGTHS]
    reducer = sample_mean(masks, len(LENGTHS)) if loss_type == "grpo" else token_mean(masks, sum(LENGTHS))
    advantages = torch.tensor(group_advantages(REWARDS, [0] * len(REWARDS)), dtype=torch.float64)
    segments = Segments(tuple(n + 3 for n in LENGTHS), tuple(masks))
    dist, ids = DenseDistribution(case["logits"][kept]), case["ids"][kept]
    low = 1.0 if loss_type == "cispo" else LOW  # TRL's cispo has no lower bound
    ours = policy_loss(
        dist, ids, case["old"][kept], segments.spread(advantages), reducer, low, HIGH,
        objective=objective, segments=segments,
    ).loss  # fmt: skip
    ours = ours + BETA * kl_loss(dist, ids, case["ref"][kept], reducer, "k3").loss
    theirs = trl_loss(case, loss_type, level)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    found, expected = (torch.autograd.grad(x, case["logits"], retain_graph=True)[0] for x in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
