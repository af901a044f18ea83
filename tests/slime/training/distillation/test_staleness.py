"""Tests samples of older weights: the weights of their tokens, their correction, and the reported metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch

from slime.errors import ConfigError
from slime.losses import DenseDistribution, policy_loss, tis, weighted_sum
from slime.training.core.batch import ages
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeHinted, MakeTrainer

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def spanning(sample: Sample, *versions: int) -> Sample:
    """Splits a response into equal version spans."""
    cuts = [sample.response_length * k // len(versions) for k in range(len(versions) + 1)]
    sample.version_spans = [(v, a, b) for v, a, b in zip(versions, cuts, cuts[1:], strict=False)]
    return sample


def test_the_age_of_a_token_is_that_of_its_own_span() -> None:
    sample = Sample(tokens=list(range(7)), response_length=6, loss_mask=[1, 0, 1, 1, 1, 1])
    sample.version_spans = [(2, 0, 3), (4, 3, 5)]
    assert ages(sample, 4) == [2, 2, 0, 0, 0]
    assert ages(sample, 3) == [1, 1, 0, 0, 0]


def test_tokens_beyond_max_staleness_have_the_stale_weight_and_are_counted(
    make_trainer: MakeTrainer, make_samples: MakeHinted
) -> None:
    def train(stale_weight: float, versions: tuple[int, ...] = (1, 5)) -> tuple[Any, dict[str, float]]:
        samples = [spanning(sample, *versions) for sample in make_samples((0, 0, 0), loss_mask=None, seed=4)]
        trainer = make_trainer(max_staleness=3, stale_weight=stale_weight, clip_grad=0.0)
        trainer.version = 5
        return trainer, trainer.train(0, samples)

    dropped, kept, halved = train(0.0), train(1.0), train(0.5)
    fresh = train(0.0, (5, 5))
    assert fresh[1]["stale_tokens"] == fresh[1]["older_tokens"] == fresh[1]["staleness"] == 0.0
    assert dropped[1]["stale_samples"] == 3.0
    assert dropped[1]["stale_tokens"] == kept[1]["stale_tokens"] > 0
    assert dropped[1]["staleness_max"] == 4.0
    assert kept[1]["grad_norm"] == pytest.approx(fresh[1]["grad_norm"])
    assert dropped[1]["pg_loss"] != pytest.approx(kept[1]["pg_loss"])
    middle = (dropped[1]["pg_loss"] + kept[1]["pg_loss"]) / 2
    assert halved[1]["pg_loss"] == pytest.approx(middle, abs=1e-6)


def test_a_stale_token_of_weight_0_has_no_influence(
    make_trainer: MakeTrainer, make_samples: MakeHinted
) -> None:
    """Another stale first half of the answer must not change the loss of the rest."""
    samples = [spanning(sample, 0, 9) for sample in make_samples((0, 0), loss_mask=None)]
    trainer = make_trainer(max_staleness=2)
    trainer.version = 9
    masked = make_samples((0, 0), loss_mask=None)
    for sample, old in zip(masked, samples, strict=True):
        half = old.version_spans[0][2]
        sample.loss_mask = [0] * half + [1] * (sample.response_length - half)
    lengths = [sample.response_length for sample in samples]
    both = trainer.train(0, samples), make_trainer(calculate_per_token_loss=True).train(0, masked)
    assert both[0]["num_tokens"] == sum(lengths)
    apart = make_trainer(max_staleness=2, calculate_per_token_loss=True)
    apart.version = 9
    shares = sum(map(sum, (sample.mask for sample in masked))) / sum(lengths)
    assert apart.train(0, samples)["pg_loss"] == pytest.approx(both[1]["pg_loss"] * shares, abs=1e-6)


def test_importance_correction_can_be_limited_to_older_spans() -> None:
    logits = torch.randn(4, 9, requires_grad=True)
    dist, ids = DenseDistribution(logits), torch.tensor([1, 2, 3, 4])
    old = dist.log_probs(ids).detach()
    engine = old - torch.tensor([0.5, 0.5, 0.5, -0.5])
    older = torch.tensor([True, False, False, True])
    reducer = weighted_sum(torch.ones(4))
    output = policy_loss(
        dist,
        ids,
        None,
        torch.ones(4),
        reducer,
        rollout_log_probs=engine,
        corrections=[tis(0.0, 1.2, only_older=True)],
        older=older,
    )
    weights = [1.2, 1.0, 1.0, float(torch.tensor(-0.5).exp())]
    assert float(output.loss) == pytest.approx(-sum(weights))
    assert float(output.metrics["tis_abs_older"]) == pytest.approx(
        float((torch.tensor([0.5, -0.5]).exp() - 1).abs().sum())
    )
    with pytest.raises(ValueError, match="a mask of older tokens"):
        policy_loss(
            dist,
            ids,
            None,
            torch.ones(4),
            reducer,
            rollout_log_probs=engine,
            corrections=[tis(0, 2, only_older=True)],
        )


def test_the_trainer_corrects_only_older_spans_if_requested(
    make_trainer: MakeTrainer, make_samples: MakeHinted
) -> None:
    def metrics(versions: tuple[int, ...], **changes: object) -> dict[str, float]:
        samples = [spanning(sample, *versions) for sample in make_samples((0, 0), loss_mask=None)]
        for sample in samples:
            sample.rollout_log_probs = [-3.0] * sample.response_length
        trainer = make_trainer(use_tis=True, **changes)
        trainer.version = 2
        found: dict[str, float] = trainer.train(0, samples)
        return found

    assert metrics((2, 2), tis_spans="older")["tis_abs"] == 0.0
    older, every = metrics((1, 2), tis_spans="older"), metrics((1, 2))
    assert 0 < older["tis_abs"] == older["tis_abs_older"] == every["tis_abs_older"] < every["tis_abs"]


def test_a_gap_between_engine_and_trainer_on_the_same_weights_raises_an_alarm(
    make_trainer: MakeTrainer, make_samples: MakeHinted, caplog: pytest.LogCaptureFixture
) -> None:
    samples = make_samples((0, 0), loss_mask=None)
    trainer = make_trainer(logprob_gap_alarm=0.05, lr=0.0)
    for sample, values in zip(samples, trainer.log_probs(samples), strict=True):
        sample.rollout_log_probs = [value + 0.04 for value in values]
    with caplog.at_level(logging.WARNING):
        assert trainer.train(0, samples)["train_rollout_logprob_abs_diff_alarm"] == 0.0
        assert "disagree" not in caplog.text
        for sample in samples:
            sample.rollout_log_probs = [value + 0.03 for value in sample.rollout_log_probs]
        metrics = trainer.train(1, samples)
    assert metrics["train_rollout_logprob_abs_diff_alarm"] == 1.0
    assert "by 0.070 nats per token for the same weights (limit 0.050)" in caplog.text
    for sample in samples:
        spanning(sample, 7)
    trainer.version = 8
    assert "train_rollout_logprob_abs_diff_alarm" not in trainer.train(2, samples)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"stale_weight": 1.5}, "must be from 0 to 1"),
        ({"stale_weight": 0.5}, "needs --max-staleness"),
        ({"tis_spans": "older"}, "needs --use-tis"),
        (
            {"max_staleness": 1, "loss_type": "custom_loss", "custom_loss_function_path": "x"},
            "has no effect on a custom loss",
        ),
    ],
)
def test_staleness_flags_without_effect_are_rejected(
    make_args: MakeArgs, changes: dict[str, Any], complaint: str
) -> None:
    from claw_base.settings.rules import check_flags

    args = make_args()
    for name, value in changes.items():
        setattr(args, name, value)
    with pytest.raises(ConfigError, match=complaint):
        check_flags(args)
