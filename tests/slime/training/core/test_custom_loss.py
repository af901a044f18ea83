"""Tests users' losses and hooks in the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from slime.errors import ConfigError, DataError
from slime.losses import load_custom_loss
from slime.types import Sample
from tests import FAKES
from tests.fakes.fixtures import MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from slime.arguments import Arguments
    from slime.training.trainer import Trainer


EXAMPLE = str(FAKES / "example_custom_loss.py")
HOOKS = '''
import torch
from slime.losses import get_log_probs_and_entropy, get_responses

def add_arguments(parser):
    parser.add_argument("--loss-scale", type=float, default=1.0)

def likelihood(args, batch, logits, sum_of_sample_mean):
    """SFT, written with slime's own helpers."""
    layout = {name: batch[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
    _, found = get_log_probs_and_entropy(logits, args=args, with_entropy=True, **layout)
    loss = -sum_of_sample_mean(torch.cat(found["log_probs"]))
    return loss, {"entropy": sum_of_sample_mean(torch.cat(found["entropy"])).detach()}

def policy(args, batch, logits, reducer):
    """The policy gradient without a clip."""
    layout = {name: batch[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
    parts = [torch.log_softmax(part, -1).gather(-1, ids[:, None])[:, 0]
             for part, ids in get_responses(logits, args=args, **layout)]
    ratio = (torch.cat(parts) - torch.cat(batch["log_probs"])).exp()
    return -reducer(ratio * torch.cat(batch["advantages"])), {}

def no_tensor(args, batch, logits, sum_of_sample_mean):
    return 1.0

def wrong(logits, labels):
    return logits

def halved(args, rollout_data):
    rollout_data["advantages"] = [
        torch.full((length,), reward / 2)
        for length, reward in zip(rollout_data["response_lengths"], rollout_data["rewards"])
    ]

def forgets(args, rollout_data):
    pass

def constant_divisor(total_lengths, response_lengths, loss_masks, per_token):
    mask = torch.cat(loss_masks)
    return lambda values: (values * mask).sum() / 100

def no_engine(*, pg_loss, loss_masks, **others):
    return pg_loss * 0.5, loss_masks, {"halved": pg_loss}
'''


@pytest.fixture
def hooks(tmp_path: Path) -> str:
    (tmp_path / "hooks.py").write_text(HOOKS)
    return str(tmp_path / "hooks.py")


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def assert_same_weights(a: Any, b: Any) -> None:
    other = weights_of(b)
    for name, tensor in weights_of(a).items():
        torch.testing.assert_close(tensor, other[name], atol=3e-5, rtol=1e-3)


def example_loss(
    args: Arguments, samples: list[Sample], reference: PreTrainedModel, policy: PreTrainedModel
) -> float:
    """Returns the example's loss in float64, sample by sample, mean over samples."""
    total = 0.0
    for sample in samples:
        ids, first = torch.tensor([sample.tokens]), sample.prompt_length
        chosen = [first + i for i, kept in enumerate(sample.mask) if kept]
        rows = torch.tensor(chosen)
        both = []
        for model in (policy, reference):
            table = torch.log_softmax(model(ids).logits[0].double() / sample.temperature, -1)
            both.append(table[rows - 1, ids[0, rows]])
        gap = both[0] - both[1]
        a = sample.get_reward_value()
        surrogate = torch.minimum(gap.exp() * a, gap.exp().clamp(1 - args.eps_clip, 1 + args.eps_clip) * a)
        total += float(-surrogate.mean() + 0.01 * gap.mean())
    return total / len(samples)


def test_the_documented_example_runs_as_a_file_without_a_name(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    samples = make_samples(6)
    trainer = make_trainer(
        loss_type="custom_loss", custom_loss_function_path=EXAMPLE, eps_clip=0.1, max_tokens_per_gpu=30
    )
    trainer.train(0, samples)
    trainer.export_weights(str(tmp_path / "moved"), 1)
    metrics = trainer.train(1, samples)
    models = [
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (trainer.args.hf_checkpoint, tmp_path / "moved")
    ]
    with torch.no_grad():
        assert metrics["loss"] == pytest.approx(example_loss(trainer.args, samples, *models), abs=1e-5)


def test_a_custom_loss_does_not_depend_on_how_samples_are_packed(
    make_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    changes = {"loss_type": "custom_loss", "custom_loss_function_path": EXAMPLE}
    one, many = make_trainer(**changes), make_trainer(**changes, max_tokens_per_gpu=1)
    losses = [trainer.train(0, make_samples(5))["loss"] for trainer in (one, many)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert_same_weights(one, many)


@pytest.mark.parametrize("per_token", [False, True])
def test_a_loss_on_logits_equals_the_built_in_one(
    make_trainer: MakeTrainer, make_samples: MakeSamples, hooks: str, per_token: bool
) -> None:
    changes = {"max_tokens_per_gpu": 30, "calculate_per_token_loss": per_token}
    samples = make_samples(6, reward=None)
    built_in = make_trainer(loss_type="sft_loss", **changes)
    own = make_trainer(
        loss_type="custom_loss",
        custom_loss_function_path=f"{hooks}:likelihood",
        disable_compute_advantages_and_returns=True,
        **changes,
    )
    for rollout_id in range(2):
        expected, found = built_in.train(rollout_id, samples), own.train(rollout_id, samples)
        assert found["loss"] == pytest.approx(expected["sft_loss"], abs=1e-5)
    assert found["entropy"] > 0
    assert "advantage" not in found
    assert_same_weights(built_in, own)


def test_a_loss_on_logits_gets_advantages_and_old_log_probs(
    make_trainer: MakeTrainer, make_samples: MakeSamples, hooks: str
) -> None:
    samples = make_samples(6)
    built_in = make_trainer(eps_clip=0.999, eps_clip_high=1e9, global_batch_size=3)
    own = make_trainer(
        loss_type="custom_loss", custom_loss_function_path=f"{hooks}:policy", global_batch_size=3
    )
    expected, found = built_in.train(0, samples), own.train(0, samples)
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-4)
    assert_same_weights(built_in, own)


def test_losses_are_distinguished_by_parameter_names_and_others_are_rejected(hooks: str) -> None:
    assert load_custom_loss(EXAMPLE)[1] == "sample"
    assert load_custom_loss(f"{hooks}:policy")[1] == "pack"
    with pytest.raises(ConfigError, match=r"\(logits, labels\).*policy_logits.*sum_of_sample_mean"):
        load_custom_loss(f"{hooks}:wrong")
    with pytest.raises(ConfigError, match="compute_loss"):
        load_custom_loss(hooks)


def test_a_custom_loss_that_returns_something_else_is_an_error(
    make_trainer: MakeTrainer, make_samples: MakeSamples, hooks: str
) -> None:
    trainer = make_trainer(loss_type="custom_loss", custom_loss_function_path=f"{hooks}:no_tensor")
    with pytest.raises(ConfigError, match="returned float"):
        trainer.train(0, make_samples(2))


def test_custom_advantages_reducers_and_corrections_are_used(
    make_trainer: MakeTrainer, make_samples: MakeSamples, hooks: str
) -> None:
    samples = make_samples(4, loss_mask=None)
    for sample in samples:
        sample.rollout_log_probs = [-1.0] * sample.response_length
    plain = make_trainer().train(0, samples)["pg_loss"]
    halved = make_trainer(custom_advantage_function_path=f"{hooks}:halved").train(0, samples)
    assert halved["pg_loss"] == pytest.approx(plain / 2, abs=1e-6)
    constant = make_trainer(custom_pg_loss_reducer_function_path=f"{hooks}:constant_divisor").train(
        0, samples
    )
    expected = sum(-sample.reward * sample.response_length for sample in samples) / 100 / 4
    assert constant["pg_loss"] == pytest.approx(expected, abs=1e-6)
    corrected = make_trainer(use_tis=True, custom_tis_function_path=f"{hooks}:no_engine").train(0, samples)
    assert corrected["pg_loss"] == pytest.approx(plain / 2, abs=1e-6)
    assert corrected["halved"] == pytest.approx(plain, abs=1e-6)
    with pytest.raises(DataError, match="rollout_data"):
        make_trainer(custom_advantage_function_path=f"{hooks}:forgets").train(0, samples)
