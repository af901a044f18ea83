"""Tests --echo-coef on megatron-core, as on FSDP."""

from __future__ import annotations

import pytest

from tests.fakes.fixtures import MakeSamples, MakeTrainer


def test_the_echo_loss_equals_that_of_fsdp(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    found: dict[str, list[dict[str, float]]] = {}
    for backend in ("fsdp", "megatron"):
        trainer = make_trainer(train_backend=backend, echo_coef=0.5, lr=1e-3)
        found[backend] = []
        for number in range(2):
            samples = make_samples(4, seed=number)
            for sample in samples[:2]:
                sample.next_tokens, seen = [5, 9, 11], [0, 1, 1]
                sample.observed = [1 - one for one in sample.mask] + seen
            found[backend].append(trainer.train(number, samples))
    for mine, theirs in zip(found["megatron"], found["fsdp"], strict=True):
        assert mine["echo_loss"] > 0
        for name in ("loss", "echo_loss", "pg_loss", "grad_norm"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-4, rel=1e-4), name
