"""Tests that a trainer offloaded to the CPU and back trains as if it had stayed, and that FSDP's own CPU tensors are
left there."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.tensor import DTensor

from slime.gate.memory import KeptState
from slime.training.core.part import Part
from slime.training.fsdp import loading
from slime.training.fsdp.offload import to_cpu, to_device
from tests.fakes.fixtures import MakeSamples, MakeTrainer

LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
ELSEWHERE = torch.device("meta")
KL: dict[str, Any] = {"use_kl_loss": True, "kl_loss_coef": 0.1}


def places(parts: list[Part]) -> set[str]:
    """Returns the kinds of devices that hold tensors of the models and their optimizers."""
    states = [
        x
        for part in parts
        if part.optimizer
        for state in part.optimizer.state.values()
        for x in state.values()
    ]
    tensors = [*states, *(x for part in parts for x in part.model.parameters())]
    return {x.device.type for x in tensors if isinstance(x, DTensor)}


@pytest.mark.parametrize("flags", [{}, LORA, {"advantage_estimator": "ppo"}], ids=["whole", "lora", "ppo"])
def test_training_after_an_offload_is_unchanged(
    make_trainer: MakeTrainer, make_samples: MakeSamples, flags: dict[str, Any]
) -> None:
    stays, leaves = make_trainer(**flags, bf16=True), make_trainer(**flags, bf16=True)
    weights: list[list[int]] = []
    for number in range(3):
        samples = make_samples(4, seed=number)
        for trainer in (stays, leaves):
            trainer.metrics = trainer.train(number, samples)
            trainer.log_probs(samples)  # FSDP keeps gathered weights after it
        assert leaves.metrics["loss"] == stays.metrics["loss"]
        parts = leaves.resident
        to_cpu(parts)
        weights.append([p.to_local().data_ptr() for part in parts for p in part.model.parameters()])
        KeptState(leaves).restore(leaves)  # the gate may read an offloaded trainer
        to_device(parts, leaves.device)
    assert leaves.log_probs(samples) == stays.log_probs(samples)
    assert weights[0] == weights[1] == weights[2]  # the memory is reused


def test_everything_is_offloaded_and_no_device_memory_stays_allocated(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer = make_trainer(**KL)
    trainer.train(0, make_samples(4))
    assert len(trainer.resident) == 2 and trainer.resident[1].model is trainer.reference.model
    to_cpu(trainer.resident)
    to_device(trainer.resident, ELSEWHERE)
    assert places(trainer.resident) == {"meta"}


def test_frozen_teachers_are_offloaded_and_shared_models_only_once(make_trainer: MakeTrainer) -> None:
    distils = {"loss_spec_path": "openclaw_opd.loss:opd_topk", "distill_topk": 4, "teacher_source": "trainer"}
    base = make_trainer(**distils, **KL)
    assert [part.model for part in base.resident] == [base.model, base.reference.model]
    lora = make_trainer(**LORA, **KL, **distils)
    assert [part.model for part in lora.resident] == [lora.model]
    alone = make_trainer(**distils)
    assert [part.model for part in alone.resident] == [alone.model, alone.teacher.model]
    assert alone.teacher.model is not alone.model
    assert [part.model for part in alone.parts] == [alone.model]  # checkpoints contain no frozen model


def test_weights_offloaded_by_fsdp_stay_on_the_cpu_and_train(
    make_trainer: MakeTrainer, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "CPUOffloadPolicy", partial(CPUOffloadPolicy, pin_memory=False))
    trainer, samples = make_trainer(fsdp_cpu_offload=True), make_samples(4)
    trainer.train(0, samples)
    to_cpu(trainer.resident)
    to_device(trainer.resident, ELSEWHERE)
    assert places(trainer.resident) == {"cpu"}
    assert trainer.train(1, samples)["grad_norm"] > 0
