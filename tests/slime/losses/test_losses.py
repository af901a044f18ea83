"""Compares values and gradients of the losses with explicit float64 references."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from slime.arguments import Arguments
from slime.losses import (
    DenseDistribution,
    LossBatch,
    PolicySettings,
    approx_kl,
    compute_loss,
    dense,
    entropy_loss,
    kl_loss,
    policy_component,
    policy_loss,
    sample_mean,
    sft_loss,
    token_mean,
    weighted_sum,
)
from slime.training.core.objective import loss_spec

T, V = 7, 11


@pytest.fixture
def logits() -> Tensor:
    torch.manual_seed(1)
    return (torch.randn(T, V, dtype=torch.float64) * 2).requires_grad_()


@pytest.fixture
def ids() -> Tensor:
    return torch.tensor([0, 3, 10, 1, 1, 7, 0])


def reference_log_probs(logits: Tensor, ids: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    scaled = logits / (temperature.double().unsqueeze(1) if isinstance(temperature, Tensor) else temperature)
    return torch.log(torch.softmax(scaled, -1))[torch.arange(len(ids)), ids]


def gradient(loss: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logits, retain_graph=True)[0]


@pytest.mark.parametrize("temperature", [1.0, 0.6, torch.linspace(0.5, 2.0, T)])
def test_log_probs_and_entropy_are_those_of_the_tempered_softmax(
    logits: Tensor, ids: Tensor, temperature: float | Tensor
) -> None:
    dist = DenseDistribution(logits.float(), temperature)
    expected = reference_log_probs(logits, ids, temperature)
    torch.testing.assert_close(dist.log_probs(ids).double(), expected, atol=1e-5, rtol=1e-5)
    scale = temperature.double().unsqueeze(1) if isinstance(temperature, Tensor) else temperature
    p = torch.softmax(logits / scale, -1)
    torch.testing.assert_close(dist.entropy().double(), -(p * p.log()).sum(-1), atol=1e-5, rtol=1e-5)
    top, top_ids = dist.topk(3)
    torch.testing.assert_close(top, dist.log_probs(top_ids))
    assert top.shape == (T, 3)


def test_bfloat16_logits_are_tempered_and_normalised_in_fp32(logits: Tensor, ids: Tensor) -> None:
    half = logits.detach().bfloat16()
    dist = DenseDistribution(half, 0.6)
    expected = reference_log_probs(half.double(), ids, 0.6)
    assert dist.log_probs(ids).dtype == torch.float32
    torch.testing.assert_close(dist.log_probs(ids).double(), expected, atol=1e-5, rtol=1e-5)


def test_a_normaliser_first_computed_without_gradients_still_has_gradients(
    logits: Tensor, ids: Tensor
) -> None:
    dist = DenseDistribution(logits)
    with torch.no_grad():
        dist.entropy()
    loss = dist.log_probs(ids).sum()
    torch.testing.assert_close(
        gradient(loss, logits), gradient(reference_log_probs(logits, ids).sum(), logits)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.6, torch.linspace(0.5, 2.0, T), torch.ones(T)])
def test_blocks_of_rows_give_the_gradient_of_the_whole(
    logits: Tensor,
    dtype: torch.dtype,
    temperature: float | Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense, "BLOCK_CPU", 3 * logits.shape[1])
    leaf = logits.detach().to(dtype).requires_grad_()
    ids = torch.stack([torch.randperm(logits.shape[1])[:3] for _ in range(T)])
    weights = torch.randn(T, 3, dtype=torch.float64)
    dist = DenseDistribution(leaf, temperature)
    values = dist.log_probs(ids)
    (found,) = torch.autograd.grad((values * weights).sum(), leaf)
    exact = leaf.detach().double().requires_grad_()
    scale = temperature.double().unsqueeze(1) if isinstance(temperature, Tensor) else temperature
    expected = torch.log_softmax(exact / scale, -1).gather(1, ids)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), exact)
    torch.testing.assert_close(values.double(), expected, atol=1e-5, rtol=1e-5)
    # a bf16 gradient is rounded once, at the end
    torch.testing.assert_close(
        found.double(), wanted, atol=1e-5, rtol=0.004 if dtype == torch.bfloat16 else 1e-9
    )
    assert found.dtype == dtype
    with torch.no_grad():
        torch.testing.assert_close(
            dist.entropy().double(), -(torch.softmax(exact / scale, -1) * torch.log_softmax(exact / scale, -1)).sum(-1),
            atol=1e-5, rtol=1e-5,
        )  # fmt: skip


def test_losses_over_log_probs_keep_the_logits_in_their_own_dtype() -> None:
    """The backward pass keeps a bf16 tensor of logits, not fp32 copies of it."""
    kept = list[Tensor]()

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    leaf = torch.randn(8, 1000).bfloat16().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        DenseDistribution(leaf, torch.full((8,), 0.7)).log_probs(torch.zeros(8, dtype=torch.long))
    assert max(x.numel() * x.element_size() for x in kept) == leaf.numel() * 2


def test_measuring_the_entropy_without_a_bonus_is_correct(logits: Tensor, ids: Tensor) -> None:
    """A fused kernel that overwrites its logits would give the entropy of a near-uniform distribution."""
    batch = LossBatch(ids=ids, advantages=torch.ones(T, dtype=torch.float64))
    output = compute_loss(
        loss_spec(arguments()), DenseDistribution(logits), batch, token_mean([torch.ones(T)], T)
    )
    p = torch.softmax(logits, -1)
    torch.testing.assert_close(output.metrics["entropy"], -(p * p.log()).sum(-1).mean().detach())


def test_sft_loss_is_the_mean_negative_log_likelihood(logits: Tensor, ids: Tensor) -> None:
    weights = torch.tensor([1.0, 0, 1, 1, 0, 1, 1])
    output = sft_loss(DenseDistribution(logits), ids, weighted_sum(weights, 5.0))
    expected = -(reference_log_probs(logits, ids) * weights).sum() / 5
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(gradient(output.loss, logits), gradient(expected, logits))


@pytest.mark.parametrize("dual", [None, 1.5])
def test_policy_loss_has_lower_upper_and_dual_clips(logits: Tensor, ids: Tensor, dual: float | None) -> None:
    new = reference_log_probs(logits, ids)
    shift = torch.tensor([0.0, 0.5, -0.5, 0.1, -0.1, 1.0, -1.0], dtype=torch.float64)
    old = (new - shift).detach()
    advantages = torch.tensor([1.0, 1, -1, -1, 2, -2, 2], dtype=torch.float64)
    output = policy_loss(DenseDistribution(logits), ids, old, advantages, torch.mean, 0.2, 0.28, dual)
    expected = torch.zeros((), dtype=torch.float64)
    clipped = 0
    for t in range(T):
        ratio, a = (new[t] - old[t]).exp(), advantages[t]
        plain, bounded = -ratio * a, -ratio.clamp(0.8, 1.28) * a
        term = plain if plain >= bounded else bounded
        clipped += int(bounded > plain)
        if dual is not None and a < 0:
            term = term if term <= -dual * a else -dual * a
        expected = expected + term / T
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(gradient(output.loss, logits), gradient(expected, logits))
    assert float(output.metrics["pg_clipfrac"]) == pytest.approx(clipped / T)
    assert ("pg_dual_clipfrac" in output.metrics) == (dual is not None)


def test_without_old_log_probs_the_ratio_is_exactly_one(logits: Tensor, ids: Tensor) -> None:
    advantages = torch.arange(T, dtype=torch.float32) - 3
    output = policy_loss(DenseDistribution(logits.float(), 0.6), ids, None, advantages, torch.sum)
    assert float(output.metrics["pg_loss"]) == -float(advantages.sum())
    assert float(output.metrics["ppo_kl"]) == 0.0
    assert float(output.metrics["pg_clipfrac"]) == 0.0
    expected = -(advantages.double() * reference_log_probs(logits, ids, 0.6)).sum()
    torch.testing.assert_close(
        gradient(output.loss, logits), gradient(expected, logits), atol=1e-5, rtol=1e-4
    )


def test_the_ratio_of_a_token_trained_again_is_relative_to_its_sampling_weights(
    logits: Tensor, ids: Tensor
) -> None:
    new = reference_log_probs(logits, ids).detach()
    shift = torch.tensor([0.0, 0.5, -0.5, 0.1, math.nan, math.nan, 0.5], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1, -1, -1, 2, -2, -1], dtype=torch.float64)
    compute = policy_component(PolicySettings(eps_clip=0.2, eps_clip_high=0.28))
    batch = LossBatch(ids, advantages, behaviour_log_probs=new - shift)
    output = compute(DenseDistribution(logits), batch, torch.sum)
    mixed = torch.where(shift.isnan(), new, new - shift)
    expected = policy_loss(DenseDistribution(logits), ids, mixed, advantages, torch.sum, 0.2, 0.28)
    torch.testing.assert_close(output.loss, expected.loss)
    moves = gradient(output.loss, logits).abs().sum(-1) > 0
    assert moves.tolist() == [True, False, False, True, True, True, True], (
        "only what went on too far is left alone"
    )


def test_entropy_has_the_gradient_of_the_tempered_entropy(logits: Tensor) -> None:
    """The temperature affects the entropy as well as log-probs."""
    output = entropy_loss(DenseDistribution(logits, 0.6), torch.mean)
    p = torch.softmax(logits / 0.6, -1)
    expected = -(p * p.log()).sum(-1).mean()
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(gradient(output.loss, logits), gradient(expected, logits))


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "low_var_kl"])
@pytest.mark.parametrize("unbiased", [False, True])
def test_kl_estimators_match_their_formulas(logits: Tensor, ids: Tensor, kind: Any, unbiased: bool) -> None:
    new = reference_log_probs(logits, ids)
    ref = (new + torch.linspace(-4, 4, T, dtype=torch.float64)).detach()
    old = (new - 0.3).detach()
    d = new - ref
    expected = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d, "low_var_kl": (-d).exp() - 1 + d}[kind]
    if unbiased:
        expected = (new - old).exp() * expected
    if kind == "low_var_kl":
        expected = expected.clamp(-10, 10)
        assert float(expected.detach().max()) == 10
    output = kl_loss(DenseDistribution(logits), ids, ref, torch.mean, kind, old if unbiased else None)
    torch.testing.assert_close(output.loss, expected.mean())
    torch.testing.assert_close(gradient(output.loss, logits), gradient(expected.mean(), logits))


def test_an_unknown_kl_estimator_is_an_error() -> None:
    with pytest.raises(ValueError, match="k4"):
        approx_kl(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]


def test_reducers_do_not_depend_on_how_samples_are_packed() -> None:
    torch.manual_seed(0)
    masks = [torch.tensor([1, 0, 1, 1]), torch.tensor([0, 1]), torch.tensor([1, 1, 0])]
    values = [torch.randn(len(mask)) for mask in masks]
    for make, total in ((sample_mean, 3), (token_mean, 6)):
        together = make(masks, total)(torch.cat(values))
        apart = make(masks[:1], total)(values[0]) + make(masks[1:], total)(torch.cat(values[1:]))
        torch.testing.assert_close(together, apart)
    by_token = sum((v * m).sum() for v, m in zip(values, masks, strict=True)) / 6
    torch.testing.assert_close(token_mean(masks, 6)(torch.cat(values)), by_token)


def test_masked_tokens_do_not_poison_the_loss() -> None:
    values = torch.tensor([1.0, float("nan"), float("inf")])
    assert float(weighted_sum(torch.tensor([1.0, 0.0, 0.0]), 2.0)(values)) == 0.5
    with pytest.raises(ValueError, match="positive"):
        weighted_sum(torch.ones(1), 0.0)


def arguments(**changes: Any) -> Any:
    return Arguments(kl_loss_type="k3", **changes)


def test_components_add_up_with_their_weights(logits: Tensor, ids: Tensor) -> None:
    spec = loss_spec(arguments(entropy_coef=0.1, use_kl_loss=True, kl_loss_coef=0.5))
    assert spec.needs_reference
    advantages, ref = torch.ones(T, dtype=torch.float64), torch.full((T,), -2.0, dtype=torch.float64)
    output = compute_loss(spec, DenseDistribution(logits), LossBatch(ids, advantages, None, ref), torch.mean)
    metrics = output.metrics
    expected = metrics["pg_loss"] - 0.1 * metrics["entropy"] + 0.5 * metrics["kl_loss"]
    torch.testing.assert_close(metrics["loss"], expected)
    dist = DenseDistribution(logits)
    parts = (
        policy_loss(dist, ids, None, advantages, torch.mean).loss
        - 0.1 * dist.entropy().mean()
        + 0.5 * approx_kl(dist.log_probs(ids), ref, "k3").mean()
    )
    torch.testing.assert_close(gradient(output.loss, logits), gradient(parts, logits))


def test_a_kl_weight_of_zero_needs_no_reference_model() -> None:
    assert not loss_spec(arguments(use_kl_loss=True, kl_loss_coef=0.0)).needs_reference
    assert not loss_spec(arguments(loss_type="sft_loss")).needs_advantages
