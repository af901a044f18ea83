"""Tests --echo-coef: observations are learned in the same pass, without effect on the other terms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from slime.types import Sample
from tests.fakes.fixtures import MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def answered(samples: list[Sample]) -> list[Sample]:
    """Returns samples: the first with a message after it, the second with an observation in it, the third alone."""
    first, second, *rest = samples
    said = [1] * 3 + [0]
    first = replace(first, next_tokens=[5, 9, 11, 2], observed=[0] * first.response_length + said)
    mask = [1, *([0] * (second.response_length - 1))]
    second = replace(second, loss_mask=mask, observed=[1 - one for one in mask])
    return [first, second, *rest]


def without(samples: list[Sample]) -> list[Sample]:
    return [replace(one, next_tokens=[], observed=None) for one in samples]


def test_without_the_flag_nothing_changes(make_trainer: MakeTrainer, make_samples: MakeSamples) -> None:
    samples = answered(make_samples(3, loss_mask=None))
    one, other = make_trainer(), make_trainer()
    found, plain = one.train(0, samples), other.train(0, without(samples))
    assert "echo_loss" not in found and found["loss"] == plain["loss"]
    assert all(torch.equal(weights_of(one)[name], value) for name, value in weights_of(other).items())


@pytest.mark.parametrize("per_token", [False, True])
def test_the_echo_loss_is_a_cross_entropy_and_other_terms_are_unchanged(
    make_trainer: MakeTrainer, make_samples: MakeSamples, per_token: bool
) -> None:
    samples = answered(make_samples(3, loss_mask=None))
    flags = {"calculate_per_token_loss": per_token, "use_kl_loss": True, "kl_loss_coef": 0.1}
    plain, echoes = make_trainer(**flags), make_trainer(**flags, echo_coef=0.5)
    read = []
    for one in samples:
        both = one.tokens + one.next_tokens
        whole = Sample(tokens=both, response_length=len(both) - one.prompt_length, temperature=1.0)
        [log_probs] = plain.log_probs([whole])
        read.append([value for value, seen in zip(log_probs, one.observed or (), strict=False) if seen])
    before, found = plain.train(0, without(samples)), echoes.train(0, samples)
    shares = [sum(values) if per_token else sum(values) / len(values) for values in read if values]
    size = sum(one.effective_response_length for one in samples) if per_token else len(samples)
    assert found["echo_loss"] == pytest.approx(-sum(shares) / size, abs=1e-5)
    assert found["loss"] == pytest.approx(before["loss"] + 0.5 * found["echo_loss"], abs=1e-5)
    for name in ("pg_loss", "kl_loss", "entropy"):
        assert found[name] == pytest.approx(before[name], abs=1e-6), name


def test_the_observed_text_becomes_likelier_with_any_packing(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = answered(make_samples(4, loss_mask=None, reward=1.0))
    samples[3] = replace(samples[0], index=3, group_index=3, next_tokens=[7, 7], observed=None)
    steps = []
    for flags in ({"micro_batch_size": 1}, {"use_dynamic_batch_size": True, "max_tokens_per_gpu": 4096}):
        trainer = make_trainer(**flags, echo_coef=1.0)
        losses = [trainer.train(number, samples)["echo_loss"] for number in range(3)]
        assert losses[2] < losses[1] < losses[0]
        steps.append(losses)
    assert steps[0] == pytest.approx(steps[1], abs=1e-4)
