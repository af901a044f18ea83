"""Tests PPO under FSDP: the critic next to the policy, its checkpoints, and moving references."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from slime.errors import DataError
from slime.training.core.packing import pack
from slime.types import Sample
from tests.fakes.fixtures import MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from slime.arguments import Arguments


PPO: dict[str, Any] = {"advantage_estimator": "ppo", "gamma": 0.95, "lambd": 0.9, "critic_lr": 3e-3}
LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}


def whole(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def slow_step(args: Arguments, critic: Any, samples: list[Sample]) -> tuple[float, float, list[list[float]]]:
    """Returns policy loss, value loss and advantages of a first step, written out: one sample at a time, plain
    attention, float64."""
    model = AutoModelForCausalLM.from_pretrained(
        args.hf_checkpoint, dtype=torch.float64, attn_implementation="eager"
    )
    head = whole(critic)["head.weight"].double()
    policy_loss, critic_loss, advantages = 0.0, 0.0, []
    for sample in samples:
        hidden = model.model(torch.tensor([sample.tokens])).last_hidden_state[0].detach()
        chosen = [sample.prompt_length + i - 1 for i, kept in enumerate(sample.mask) if kept]
        values = [float(hidden[i] @ head[0]) for i in chosen]
        rewards = [0.0] * len(chosen)
        rewards[-1] = sample.get_reward_value()
        following = [*values[1:], 0.0]
        surprise = [r + args.gamma * f - v for r, f, v in zip(rewards, following, values, strict=True)]
        decay = args.gamma * args.lambd
        n = len(chosen)
        mine = [sum(decay ** (u - t) * surprise[u] for u in range(t, n)) for t in range(n)]
        policy_loss -= sum(mine) / n / len(samples)  # the ratio is 1
        critic_loss += sum(a * a for a in mine) / n / len(samples)  # returns - values
        advantages.append(mine)
    return policy_loss, critic_loss, advantages


def test_the_first_ppo_step_equals_an_explicit_float64_step(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(6)
    trainer = make_trainer(**PPO, max_tokens_per_gpu=30)
    policy, value, _ = slow_step(trainer.args, trainer.critic.model, samples)
    metrics = trainer.train(0, samples)
    assert metrics["pg_loss"] == pytest.approx(policy, rel=1e-5, abs=1e-6)
    assert metrics["value_loss"] == pytest.approx(value, rel=1e-5)
    assert metrics["critic_grad_norm"] > 0


@pytest.mark.parametrize("adapters", [{}, LORA], ids=["full", "lora"])
def test_the_critic_learns_the_reward_of_a_prompt(
    make_trainer: MakeTrainer, make_samples: MakeSamples, adapters: dict[str, Any]
) -> None:
    samples = make_samples(8, temperature=1.0, loss_mask=None)
    for sample in samples:  # the first token determines the reward
        sample.tokens[0] = 5 if sample.reward == 1.0 else 9
    trainer = make_trainer(
        **PPO | adapters | {"num_critic_only_steps": 100, "critic_lr": 1e-2, "value_clip": 1.0}
    )
    before = whole(trainer.model)
    losses = [trainer.train(i, samples)["value_loss"] for i in range(25)]
    assert losses[-1] < 0.25 * losses[0]
    assert same(before, whole(trainer.model)) and trainer.global_step == 0
    trainer.args.num_critic_only_steps = 0
    metrics = trainer.train(25, samples)
    assert metrics["grad_norm"] > 0 and not same(before, whole(trainer.model))


@pytest.mark.parametrize("only", [0, 1])
@pytest.mark.parametrize("adapters", [{}, LORA], ids=["full", "lora"])
def test_resuming_policy_and_critic_is_bit_exact(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path, adapters: dict[str, Any], only: int
) -> None:
    """Also if only the critic has been trained so far, and the policy's optimizer has no state."""
    flags = PPO | adapters | {
        "num_critic_only_steps": only, "lr_decay_style": "WSD", "lr_decay_iters": 8, "lr_wsd_decay_iters": 6,
        "lr_warmup_iters": 1, "global_batch_size": 3, "kl_coef": 0.1,
    }  # fmt: skip
    rollouts = [make_samples(5, seed=seed) for seed in range(3)]
    straight = make_trainer(**flags, save=str(tmp_path / "straight"))
    for rollout_id in range(3):
        straight.train(rollout_id, rollouts[rollout_id])
    first = make_trainer(**flags)
    first.train(0, rollouts[0])
    first.save(0, version=1, parent=0)
    second = make_trainer(**flags, seed=99)
    assert second.load().rollout_id == 0
    assert second.critic.steps == 2
    for rollout_id in (1, 2):
        second.train(rollout_id, rollouts[rollout_id])
    assert same(whole(straight.model), whole(second.model))
    assert same(whole(straight.critic.model), whole(second.critic.model))


@pytest.mark.parametrize("adapters", [{}, LORA], ids=["full", "lora"])
def test_a_reference_follows_the_policy_and_is_restored(
    make_trainer: MakeTrainer, make_samples: MakeSamples, adapters: dict[str, Any]
) -> None:
    flags = adapters | {
        "use_kl_loss": True,
        "kl_loss_coef": 0.1,
        "kl_loss_type": "k3",
        "ref_update_interval": 2,
    }
    trainer = make_trainer(**flags)
    rollouts = [make_samples(4, seed=seed) for seed in range(3)]
    start = whole(trainer.reference.model)
    trainer.train(0, rollouts[0])
    assert same(start, whole(trainer.reference.model))
    trainer.train(1, rollouts[1])
    moved = whole(trainer.reference.model)
    assert not same(start, moved)
    assert trainer.train(2, rollouts[2])["kl_loss"] == pytest.approx(0.0, abs=1e-6)
    trainer.save(2, version=3, parent=2)
    restored = make_trainer(**flags)
    restored.load()
    assert same(moved, whole(restored.reference.model))
    assert same(whole(trainer.model), whole(restored.model))


def test_the_engines_log_probs_can_be_used_as_old_ones(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4)
    with pytest.raises(DataError, match="--use-rollout-logprobs"):
        make_trainer(use_rollout_logprobs=True).train(0, samples)
    trainer = make_trainer(use_rollout_logprobs=True)
    own = trainer.log_probs(samples)
    for sample, values in zip(samples, own, strict=True):
        sample.rollout_log_probs = [value - 0.1 for value in values]
    metrics = trainer.train(0, samples)
    assert metrics["ppo_kl"] == pytest.approx(-0.1, abs=1e-5)
    assert metrics["train_rollout_logprob_abs_diff"] == pytest.approx(0.1, abs=1e-5)


def test_importance_weights_can_be_measured_without_effect(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4)
    for sample in samples:
        sample.rollout_log_probs = [-3.0] * sample.response_length
    plain, measured, applied = (
        make_trainer(**flags)
        for flags in ({}, {"get_mismatch_metrics": True}, {"use_tis": True})  # type: ignore[arg-type]
    )
    results = [trainer.train(0, copy.deepcopy(samples)) for trainer in (plain, measured, applied)]
    assert "tis" not in results[0] and results[1]["tis"] == results[2]["tis"]
    assert results[0]["pg_loss"] == results[1]["pg_loss"] != results[2]["pg_loss"]
    assert same(whole(plain.model), whole(measured.model))


@pytest.mark.parametrize("adapters", [{}, LORA], ids=["full", "lora"])
def test_the_critics_head_computes_in_fp32_after_a_bf16_body(
    make_trainer: MakeTrainer, make_samples: MakeSamples, adapters: dict[str, Any]
) -> None:
    """In bf16 values above 1 would differ by a hundredth, as much as many advantages."""
    trainer, samples = make_trainer(**PPO | adapters, bf16=True), make_samples(4)
    packed, seen = pack(samples, torch.device("cpu")), list[torch.Tensor]()
    trainer.critic.model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    values = trainer.critic.model.values(packed)
    (hidden,) = seen
    assert values.dtype == torch.float32 and torch.equal(hidden, hidden.bfloat16().float())
    exact = hidden.double() @ whole(trainer.critic.model)["head.weight"].double()[0]
    torch.testing.assert_close(values.double(), exact, atol=1e-6, rtol=1e-6)
    assert not torch.equal(values, values.bfloat16().float())
    assert trainer.train(0, samples)["critic_grad_norm"] > 0


def test_values_are_predicted_before_the_trained_tokens(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    (sample,) = make_samples(1, loss_mask=None)
    critic = make_trainer(**PPO).critic
    packed = pack([sample], torch.device("cpu"))
    assert critic.model.values(packed).shape == (sample.response_length,)
