"""Tests PPO's critic on megatron-core: values, losses and steps equal those of the FSDP backend."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.fixtures import MakeSamples, MakeTrainer

JOBS: dict[str, dict[str, Any]] = {
    "whole": {"global_batch_size": 4, "critic_lr": 3e-3, "lambd": 0.9, "kl_coef": 0.05},
    "waiting_policy": {
        "num_critic_only_steps": 1,
        "calculate_per_token_loss": True,
        "hf_checkpoint": "qwen2",
    },
    "adapters": {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0},
}


@pytest.mark.parametrize("name", JOBS)
def test_three_ppo_rollouts_equal_those_of_fsdp(
    make_trainer: MakeTrainer, make_samples: MakeSamples, folders: dict[str, str], name: str
) -> None:
    changes = {"advantage_estimator": "ppo", "lr": 1e-3, "value_clip": 0.2} | JOBS[name]
    folder = folders[changes.get("hf_checkpoint", "qwen3")]
    changes |= {"hf_checkpoint": folder, "ref_load": folder}
    found = {}
    for backend in ("fsdp", "megatron"):
        trainer = make_trainer(train_backend=backend, **changes)
        found[backend] = [trainer.train(i, make_samples(6, seed=i)) for i in range(3)]
    for ours, theirs in zip(found["megatron"], found["fsdp"], strict=True):
        assert ours.keys() == theirs.keys() and "value_loss" in ours
        for key in ours.keys() - {"train_seconds"}:
            assert ours[key] == pytest.approx(theirs[key], abs=1e-4, rel=1e-4), key


def test_critic_and_policy_resume_together(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    changes = {"advantage_estimator": "ppo", "value_clip": 0.2, "lr_warmup_iters": 4}
    whole = make_trainer(**changes)
    whole.train(0, make_samples(6))
    whole.save(0, 1, 0)
    expected = [whole.train(i, make_samples(6, seed=i)) for i in (1, 2)]
    resumed = make_trainer(**changes, seed=99)
    resumed.load()
    assert resumed.critic.steps == 1
    for i, metrics in enumerate(expected, 1):
        again = resumed.train(i, make_samples(6, seed=i))
        assert {**again, "train_seconds": 0.0} == {**metrics, "train_seconds": 0.0}
