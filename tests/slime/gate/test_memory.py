"""Tests the rollback from memory: it restores the trainer bit by bit, with optimizer and random state."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch

from slime.gate.memory import KeptState
from tests.fakes.fixtures import MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


FLAGS: list[dict[str, Any]] = [
    {},
    {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0},
    {"advantage_estimator": "ppo", "disable_rewards_normalization": False},
]


@pytest.mark.parametrize("steps_before", [0, 2])
@pytest.mark.parametrize("flags", FLAGS, ids=["whole", "lora", "ppo"])
def test_training_after_a_rollback_is_as_without_the_undone_step(
    make_trainer: MakeTrainer, make_samples: MakeSamples, flags: dict[str, Any], steps_before: int
) -> None:
    trainer = make_trainer(**flags)
    for number in range(steps_before):
        trainer.train(number, make_samples(4))
    kept = KeptState(trainer)
    step, version = trainer.global_step, trainer.version
    weights = snapshot(trainer)
    first = trainer.train(9, make_samples(6)), snapshot(trainer), torch.rand(3), random.random()
    kept.restore(trainer)
    assert (trainer.global_step, trainer.version) == (step, version) and equal(snapshot(trainer), weights)
    again = trainer.train(9, make_samples(6)), snapshot(trainer), torch.rand(3), random.random()
    assert first[0]["loss"] == again[0]["loss"] and equal(first[1], again[1])
    assert torch.equal(first[2], again[2]) and first[3] == again[3]


def test_a_state_can_be_restored_more_than_once(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    trainer = make_trainer()
    kept, weights = KeptState(trainer), snapshot(trainer)
    for number in range(3):
        trainer.train(number, make_samples(4))
        kept.restore(trainer)
        assert equal(snapshot(trainer), weights)


def test_a_forward_pass_before_a_rollback_leaves_no_undone_weights(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    """FSDP leaves gathered weights after a forward pass, next to the restored shards."""
    trainer, samples = make_trainer(), make_samples(4)
    kept, before = KeptState(trainer), trainer.log_probs(samples)
    trainer.train(0, samples)
    assert trainer.log_probs(samples) != before
    kept.restore(trainer)
    assert trainer.log_probs(samples) == before


def test_two_stored_states_are_restored_independently(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer, places = make_trainer(), list[set[int]]()
    trainer.train(0, make_samples(4))
    kept, expected = KeptState(trainer), snapshot(trainer)
    for number in range(1, 5):
        trainer.train(number, make_samples(4, seed=number))
        noted, now = KeptState(trainer), snapshot(trainer)
        places.append({tensor.data_ptr() for part in noted.weights for tensor in part})
        kept.restore(trainer)
        assert equal(snapshot(trainer), expected)
        noted.restore(trainer)
        assert equal(snapshot(trainer), now)
        kept, expected = noted, now
    assert places[0] == places[2] and places[1] == places[3] and not places[0] & places[1]


@pytest.mark.parametrize("flags", FLAGS, ids=["whole", "lora", "ppo"])
def test_a_shortened_step_interpolates_weights_and_keeps_the_moments(
    make_trainer: MakeTrainer, make_samples: MakeSamples, flags: dict[str, Any]
) -> None:
    trainer, samples = (
        make_trainer(**flags, ref_update_interval=1, use_kl_loss=True, kl_loss_coef=0.1),
        make_samples(4),
    )
    trainer.train(0, samples)
    kept, live = KeptState(trainer), policy(trainer)
    trainer.train(1, make_samples(6))
    candidate, moments, step = policy(trainer), moments_of(trainer), trainer.global_step
    for share in (0.5, 0.25):
        kept.shrink(trainer, share)
    now = policy(trainer)
    assert not equal(now, candidate)
    for one, first, last in zip(now, live, candidate, strict=True):
        torch.testing.assert_close(one, first + 0.125 * (last - first), rtol=1e-6, atol=1e-8)
    assert equal(moments_of(trainer), moments) and trainer.global_step == step
    assert trainer.reference is not None
    followed = [local(p) for p in trainer.reference.model.parameters()]  # type: ignore[attr-defined]
    assert flags.get("use_lora") or equal(followed, now), "a reference that follows has followed again"
    assert math.isfinite(trainer.train(2, samples)["loss"])
    kept.restore(trainer)
    assert equal(policy(trainer), live)


def policy(trainer: Trainer) -> list[torch.Tensor]:
    return [local(parameter) for parameter in trainer.parts[0].model.parameters()]


def moments_of(trainer: Trainer) -> list[torch.Tensor]:
    optimizer = trainer.parts[0].optimizer
    assert optimizer is not None
    return [local(x) for state in optimizer.state.values() for x in state.values() if x.dim()]


def local(tensor: torch.Tensor) -> torch.Tensor:
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().clone()


def snapshot(trainer: Trainer) -> list[torch.Tensor]:
    return [
        parameter.detach().full_tensor().clone()
        if hasattr(parameter, "full_tensor")
        else parameter.detach().clone()
        for part in trainer.parts
        for parameter in part.model.parameters()
    ]


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))
