"""Compares GAE and the value loss with slow loops in float64, values and gradients."""

from __future__ import annotations

import math
import random

import pytest
import torch

from slime.losses import AdvantageSettings, SampleTerms, gae, ppo_advantages, value_loss, weighted_sum


def slow_gae(rewards: list[float], values: list[float], gamma: float, lambd: float) -> list[float]:
    """Returns advantages by definition: a sum over all later TD errors, not a recursion."""
    n = len(rewards)
    following = [*values[1:], 0.0]
    surprise = [rewards[t] + gamma * following[t] - values[t] for t in range(n)]
    return [sum((gamma * lambd) ** (u - t) * surprise[u] for u in range(t, n)) for t in range(n)]


@pytest.mark.parametrize(("gamma", "lambd"), [(1.0, 1.0), (1.0, 0.0), (0.99, 0.95), (0.5, 0.3)])
def test_gae_over_uneven_lengths_is_the_sum_of_discounted_td_errors(gamma: float, lambd: float) -> None:
    rng = random.Random(0)
    lengths = [1, 300, 2, 128, 129, 7]
    rewards, values = ([[rng.gauss(0, 1) for _ in range(n)] for n in lengths] for _ in range(2))
    advantages, returns = gae(
        [torch.tensor(x) for x in rewards], [torch.tensor(x) for x in values], gamma, lambd
    )
    for found, back, r, v in zip(advantages, returns, rewards, values, strict=True):
        expected = slow_gae(r, v, gamma, lambd)
        assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
        assert back.tolist() == pytest.approx(
            [a + b for a, b in zip(expected, v, strict=True)], rel=1e-5, abs=1e-5
        )


def test_without_discount_the_return_is_the_reward_and_a_batch_may_be_empty() -> None:
    advantages, returns = gae([torch.tensor([0.0, 0.0, 2.0])], [torch.tensor([0.5, 1.0, -1.0])], 1.0, 1.0)
    assert advantages[0].tolist() == [1.5, 1.0, 3.0]
    assert returns[0].tolist() == [2.0, 2.0, 2.0]
    assert gae([], [], 1.0, 1.0) == ([], [])


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_ppo_shapes_rewards_by_kl_and_skips_tokens_that_were_not_sampled(kind: str) -> None:
    old, ref, values = [-1.0, -2.0, -0.5], [-1.5, -1.0, -0.5], [0.3, -0.2, 0.7]
    terms = SampleTerms(
        reward=2.0,
        mask=torch.tensor([1, 0, 1, 1, 0], dtype=torch.bool),
        old_log_probs=torch.tensor(old),
        ref_log_probs=torch.tensor(ref),
    )
    settings = AdvantageSettings(gamma=0.9, lambd=0.8, kl_coef=0.1, kl_loss_type=kind)  # type: ignore[arg-type]
    formula = {"k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: math.exp(-d) - 1 + d}[kind]
    rewards = [-0.1 * formula(o - r) for o, r in zip(old, ref, strict=True)]
    rewards[-1] += 2.0
    advantages, _ = ppo_advantages(settings, [terms], [torch.tensor(values)])
    assert advantages[0].tolist() == pytest.approx(slow_gae(rewards, values, 0.9, 0.8), rel=1e-5)


def test_the_value_loss_is_the_worse_of_the_plain_and_the_clipped_square() -> None:
    torch.manual_seed(0)
    values = (torch.randn(40, dtype=torch.float64)).requires_grad_()
    old, returns = torch.randn(40, dtype=torch.float64), torch.randn(40, dtype=torch.float64) * 2
    weights = torch.rand(40, dtype=torch.float64)
    found = value_loss(values, old, returns, weighted_sum(weights, 3.0), clip=0.2)
    expected, hits = torch.zeros((), dtype=torch.float64), 0.0
    for t in range(40):
        v, o, g = values[t], float(old[t]), float(returns[t])
        shift = float(v.detach()) - o
        bounded = v if abs(shift) <= 0.2 else v.detach() * 0 + o + math.copysign(0.2, shift)
        plain, clipped = (v - g) ** 2, (bounded - g) ** 2
        expected = expected + weights[t] * (clipped if clipped > plain else plain) / 3
        hits += float(weights[t]) / 3 * float(clipped > plain)
    torch.testing.assert_close(found.loss, expected, rtol=1e-10, atol=1e-12)
    ours, theirs = (torch.autograd.grad(x, values, retain_graph=True)[0] for x in (found.loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert float(found.metrics["value_clipfrac"]) == pytest.approx(hits)
    assert hits > 0
