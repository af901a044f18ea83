"""Compares the mean of the weights over the steps of an update with a manually computed one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from slime.training.core.learner import step_scale
from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer
from tests.slime.gate.test_memory import equal, policy


def test_an_update_ends_at_the_mean_of_its_steps_and_the_next_one_starts_there(
    make_trainer: MakeTrainer, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(average_steps=0.4, global_batch_size=2)
    seen: list[list[torch.Tensor]] = []
    step = trainer._step

    def watched(*args: object) -> dict[str, float]:
        metrics = step(*args)  # type: ignore[arg-type]
        seen.append(policy(trainer))
        return metrics

    monkeypatch.setattr(trainer, "_step", watched)
    trainer.train(0, make_samples(8))
    assert len(seen) == 4
    mean = seen[0]
    for number, weights in enumerate(seen[1:], 2):
        decay = min(0.4, number / (number + 4))
        mean = [decay * old + (1 - decay) * new for old, new in zip(mean, weights, strict=True)]
    now = policy(trainer)
    for one, expected in zip(now, mean, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-8)
    assert not equal(now, seen[-1]) and trainer.global_step == 4
    seen.clear()
    assert math.isfinite(trainer.train(1, make_samples(2))["loss"])
    assert equal(policy(trainer), seen[0]), "one step is its own mean"


def test_the_learning_rate_of_small_batches_scales_with_the_square_root_without_companions(
    make_trainer: MakeTrainer, make_samples: MakeSamples, make_args: MakeArgs
) -> None:
    four = make_samples(4)
    assert step_scale(make_args(), four, four, 1.0) == 1.0
    args = make_args(lr_batch_reference=16)
    assert step_scale(args, four, four, 1.0) == 0.5
    assert step_scale(args, make_samples(30), four, 1.0) == 1.0
    companions = make_samples(12, companion=1)
    assert step_scale(args, [*four, *companions], four, 1.0) == 0.5
    dreams = [
        replace(one, divergence="forward", teacher_tokens_candidates=[one.tokens]) for one in companions
    ]
    assert step_scale(args, [*four, *dreams], dreams, 1.0) == 1.0
    # The gate lowers their rate, and does not raise it.
    assert [step_scale(args, [*four, *dreams], dreams, scale) for scale in (0.5, 2.0)] == [0.5, 1.0]
    assert [step_scale(args, four, four, scale) for scale in (0.5, 2.0)] == [0.25, 1.0]
    later = [replace(one, companion=2) for one in dreams]
    args = make_args(extra_decay_steps=4)
    rates = [step_scale(args, [*four, *dreams, *later], step, 1.0) for step in (four, dreams, later)]
    assert rates == [1.0, 0.5, 0.25], "the last steps of an update have the lowest rates"
    hinted = [replace(four[0], teacher_tokens_candidates=[four[0].tokens]), *four[1:]]
    rates = [step_scale(make_args(), step, step, 1.0, unhinted_rate=0.01) for step in (four, hinted)]
    assert rates == [0.01, 1.0], "without a hint the step is as short as the weight of rewards is small"
    full, slow = (make_trainer(lr_batch_reference=count).train(0, four)["lr"] for count in (0, 16))
    assert slow == pytest.approx(full / 2)
