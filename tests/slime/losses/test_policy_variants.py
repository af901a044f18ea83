"""Compares GSPO, CISPO and the corrections with loops in float64, values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from slime.losses import (
    DenseDistribution,
    Segments,
    custom_tis,
    opsm,
    policy_loss,
    tis,
    weighted_sum,
)

V = 11
MASKS = [[1, 0, 1, 1], [0, 1], [1, 1, 0, 1]]
SEGMENTS = Segments((9, 4, 6), tuple(torch.tensor(mask, dtype=torch.bool) for mask in MASKS))
COUNTS = (3, 1, 3)
T = sum(COUNTS)
IDS = torch.tensor([0, 3, 10, 1, 1, 7, 0])
SHIFT = torch.tensor([0.0, 0.5, -0.5, 0.1, -0.1, 1.0, 0.3], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, 1, -1, -1, -2, -2, 2], dtype=torch.float64)
ENGINE_SHIFT = torch.tensor([0.2, -1.0, 1.5, 0.0, 0.05, -0.05, 3.0], dtype=torch.float64)
WEIGHTS = [1 / count for count in COUNTS for _ in range(count)]
REDUCER = weighted_sum(torch.tensor(WEIGHTS, dtype=torch.float64), 3)
OF_TOKEN = [0, 0, 0, 1, 2, 2, 2]


@pytest.fixture
def logits() -> Tensor:
    torch.manual_seed(1)
    return (torch.randn(T, V, dtype=torch.float64) * 2).requires_grad_()


def log_probs(logits: Tensor) -> Tensor:
    return torch.log(torch.softmax(logits, -1))[torch.arange(T), IDS]


def agree(loss: Tensor, expected: Tensor, logits: Tensor) -> None:
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    ours, theirs = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def clipped(ratio: Tensor, a: Tensor, low: float, high: float) -> Tensor:
    plain, bounded = -ratio * a, -ratio.clamp(1 - low, 1 + high) * a
    return plain if plain >= bounded else bounded


def sample_means(per_token: list[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for t, value in enumerate(per_token):
        total = total + value / COUNTS[OF_TOKEN[t]] / 3
    return total


def run(logits: Tensor, **how: Any) -> Any:
    old = (log_probs(logits) - SHIFT).detach()
    return policy_loss(
        DenseDistribution(logits), IDS, old, ADVANTAGES, REDUCER, 0.2, 0.28, segments=SEGMENTS, **how
    )


def test_gspo_has_one_ratio_a_sample_and_its_gradient_reaches_every_token(logits: Tensor) -> None:
    new, old = log_probs(logits), (log_probs(logits) - SHIFT).detach()
    per_token = []
    for t in range(T):
        mine = [u for u in range(T) if OF_TOKEN[u] == OF_TOKEN[t]]
        ratio = (torch.stack([new[u] - old[u] for u in mine]).sum() / len(mine)).exp()
        per_token.append(clipped(ratio, ADVANTAGES[t], 0.2, 0.28))
    agree(run(logits, objective="gspo").loss, sample_means(per_token), logits)


def test_gspo_without_samples_is_refused(logits: Tensor) -> None:
    with pytest.raises(ValueError, match="GSPO"):
        policy_loss(DenseDistribution(logits), IDS, None, ADVANTAGES, REDUCER, objective="gspo")


def test_cispo_clips_the_weight_and_keeps_the_gradient_of_the_log_prob(logits: Tensor) -> None:
    new = log_probs(logits)
    per_token, hits = [], 0.0
    for t in range(T):
        ratio = math.exp(float(SHIFT[t]))
        weight = min(max(ratio, 0.8), 1.28)
        hits += (weight != ratio) / COUNTS[OF_TOKEN[t]] / 3
        per_token.append(-weight * ADVANTAGES[t] * new[t])
    output = run(logits, objective="cispo")
    agree(output.loss, sample_means(per_token), logits)
    assert float(output.metrics["pg_clipfrac"]) == pytest.approx(hits)


def test_opsm_drops_bad_tokens_of_samples_that_drifted_away(logits: Tensor) -> None:
    new, old = log_probs(logits), (log_probs(logits) + SHIFT).detach()
    per_token, dropped = [], 0.0
    for t in range(T):
        mine = [u for u in range(T) if OF_TOKEN[u] == OF_TOKEN[t]]
        drift = sum(float(old[u] - new[u].detach()) for u in mine) / len(mine)
        keep = not (float(ADVANTAGES[t]) < 0 and drift > 0.2)
        dropped += (not keep) / COUNTS[OF_TOKEN[t]] / 3
        per_token.append(clipped((new[t] - old[t]).exp(), ADVANTAGES[t], 0.2, 0.28) * keep)
    output = policy_loss(
        DenseDistribution(logits), IDS, old, ADVANTAGES, REDUCER, 0.2, 0.28, segments=SEGMENTS,
        corrections=[opsm(0.2)],
    )  # fmt: skip
    agree(output.loss, sample_means(per_token), logits)
    assert float(output.metrics["opsm_clipfrac"]) == pytest.approx(dropped)
    assert 0 < dropped < 1


@pytest.mark.parametrize("icepop", [False, True])
@pytest.mark.parametrize("on_policy", [False, True])
def test_importance_weights_between_trainer_and_engine_match_their_formulas(
    logits: Tensor, icepop: bool, on_policy: bool
) -> None:
    new = log_probs(logits)
    old = new.detach() if on_policy else (new - SHIFT).detach()
    engine = old - ENGINE_SHIFT
    per_token, outside = [], 0.0
    for t in range(T):
        w = math.exp(float(ENGINE_SHIFT[t]))
        inside = 0.5 <= w <= 2.0
        outside += (not inside) / COUNTS[OF_TOKEN[t]] / 3
        weight = (w if inside else 0.0) if icepop else min(max(w, 0.5), 2.0)
        ratio = (new[t] - old[t]).exp()
        per_token.append(clipped(ratio, ADVANTAGES[t], 0.2, 0.28) * weight)
    output = policy_loss(
        DenseDistribution(logits), IDS, None if on_policy else old, ADVANTAGES, REDUCER, 0.2, 0.28,
        segments=SEGMENTS, rollout_log_probs=engine, corrections=[tis(0.5, 2.0, icepop)],
    )  # fmt: skip
    agree(output.loss, sample_means(per_token), logits)
    assert float(output.metrics["tis_clipfrac"]) == pytest.approx(outside)


def test_a_custom_correction_gets_whole_responses_and_may_mask_tokens(logits: Tensor) -> None:
    seen: dict[str, Any] = {}

    def halve_and_veto(*, pg_loss: Tensor, loss_masks: list[Tensor], **others: Any) -> Any:
        seen.update(others)
        masks = [mask.clone() for mask in loss_masks]
        masks[1][:] = 0
        return pg_loss * 0.5, masks, {"mean_loss": pg_loss, "vetoed": torch.tensor(1.0)}

    old = (log_probs(logits) - SHIFT).detach()
    plain = [clipped(x.exp(), a, 0.2, 0.28) for x, a in zip(log_probs(logits) - old, ADVANTAGES, strict=True)]
    output = run(logits, rollout_log_probs=old, corrections=[custom_tis(halve_and_veto, args="flags")])
    expected = sample_means([value * 0.5 * (OF_TOKEN[t] != 1) for t, value in enumerate(plain)])
    agree(output.loss, expected, logits)
    assert seen["args"] == "flags"
    assert seen["total_lengths"] == [9, 4, 6]
    assert [len(part) for part in seen["train_log_probs"]] == seen["response_lengths"] == [4, 2, 4]
    assert float(seen["train_log_probs"][0][1]) == 0.0
    assert float(output.metrics["vetoed"]) == pytest.approx(1.0)
    assert float(output.metrics["mean_loss"]) == pytest.approx(float(sample_means(plain).detach()))


def test_a_custom_reducer_applies_only_to_the_policy_loss(logits: Tensor) -> None:
    """Dr. GRPO: a constant divisor instead of each sample's length."""
    constant = weighted_sum(torch.ones(T), 100.0)
    output = run(logits, pg_reducer=constant)
    old = (log_probs(logits) - SHIFT).detach()
    terms = [clipped(x.exp(), a, 0.2, 0.28) for x, a in zip(log_probs(logits) - old, ADVANTAGES, strict=True)]
    agree(output.loss, torch.stack(terms).sum() / 100, logits)
    assert float(output.metrics["ois"]) == pytest.approx(
        float(sample_means([s.exp() for s in SHIFT])), rel=1e-9
    )


def test_expanding_and_selecting_token_values_are_inverse() -> None:
    values = torch.arange(1.0, T + 1)
    wide = SEGMENTS.widen(values)
    assert wide.tolist() == [1, 0, 2, 3, 0, 4, 5, 6, 0, 7]
    assert torch.equal(SEGMENTS.narrow(wide), values)
    assert torch.equal(SEGMENTS.narrow(SEGMENTS.widen_split(values)), values)
    torch.testing.assert_close(SEGMENTS.mean(values), torch.tensor([2.0, 4.0, 6.0]))
