from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from slime.errors import DataError
from slime.training.attention.kernels import SDPA as ATTENTION
from slime.training.core.packing import check_samples, pack
from slime.training.fsdp.model import equip
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


CPU = torch.device("cpu")


def test_a_pack_is_the_samples_one_after_another_with_restarting_positions() -> None:
    first = Sample(tokens=[5, 6, 7, 0], response_length=2, loss_mask=[1, 1], temperature=0.6)
    second = Sample(tokens=[8, 9, 1, 2], response_length=3, loss_mask=[1, 0, 1])
    packed = pack([first, second], CPU)
    assert packed.input_ids.tolist() == [[5, 6, 7, 0, 8, 9, 1, 2]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 3]]
    assert packed.targets.tolist() == [7, 0, 9, 2]
    assert packed.logit_positions.tolist() == [1, 2, 4, 6]
    torch.testing.assert_close(packed.temperatures, torch.tensor([0.6, 0.6, 1.0, 1.0]))
    assert packed.spread([1.0, 2.0]).tolist() == [1, 1, 2, 2]


def test_masked_response_tokens_are_predicted_only_when_asked() -> None:
    sample = Sample(tokens=[8, 9, 1, 2], response_length=3, loss_mask=[1, 0, 1])
    assert pack([sample], CPU, only_trained=False).targets.tolist() == [9, 1, 2]


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [([1, 2], "no prompt token"), ([1, 2, 64], "token id 64"), ([-1, 2, 3], "token id -1")],
)
def test_invalid_samples_are_rejected_before_any_is_run(tokens: list[int], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        check_samples([Sample(index=3, tokens=tokens, response_length=2)], vocabulary=64)


@pytest.fixture(scope="module")
def plain_model(model_folder: str) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="eager"
    )


def plain_log_probs(model: PreTrainedModel, sample: Sample) -> list[float]:
    """Returns the log-probs of one sample alone in the unsharded model with textbook attention, at its
    temperature."""
    with torch.no_grad():
        logits = model(torch.tensor([sample.tokens])).logits[0].double() / sample.temperature
    table = torch.log_softmax(logits, -1)
    first = sample.prompt_length
    return [float(table[i - 1, sample.tokens[i]]) for i in range(first, len(sample.tokens))]


@pytest.mark.parametrize(
    "batching",
    [{}, {"max_tokens_per_gpu": 20}, {"use_dynamic_batch_size": False, "micro_batch_size": 4}],
)
def test_packed_log_probs_are_those_of_each_sample_alone(
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    plain_model: PreTrainedModel,
    batching: dict[str, Any],
) -> None:
    samples = make_samples(7)
    found = make_trainer(**batching).log_probs(samples)
    for sample, values in zip(samples, found, strict=True):
        assert values == pytest.approx(plain_log_probs(plain_model, sample), abs=2e-5)


def grouped(samples: list[Sample]) -> list[Sample]:
    """Returns three prompts with 1, 4 and 2 answers, in mixed order; one answer has only one token."""
    prompts = [[5, 9, 5], [7, 8, 9, 10, 11, 12], [3]]
    for sample, which in zip(samples, (1, 0, 1, 2, 1, 2, 1), strict=True):
        response = sample.tokens[sample.prompt_length :]
        sample.tokens = prompts[which] + response
    last = samples[-1]
    last.tokens, last.response_length, last.loss_mask = last.tokens[:7], 1, [1]
    return samples


def test_equal_prompts_appear_once_in_a_pack() -> None:
    one = Sample(tokens=[5, 6, 7, 8], response_length=2, loss_mask=[1, 1], temperature=0.6)
    other = Sample(tokens=[9, 1], response_length=1)
    two = Sample(tokens=[5, 6, 3, 4, 2], response_length=3, loss_mask=[1, 0, 1])
    packed = pack([one, other, two], CPU)
    assert packed.input_ids.tolist() == [[5, 6, 7, 8, 3, 4, 2, 9, 1]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 2, 3, 4, 0, 1]]
    assert packed.layout == ((2, 2, 3), (2,))
    assert packed.targets.tolist() == [7, 8, 1, 3, 2]
    assert packed.logit_positions.tolist() == [1, 2, 7, 1, 5]
    assert packed.lengths == (4, 2, 5)


@pytest.mark.parametrize("window", [None, 4])
def test_sharing_prompts_changes_neither_log_probs_nor_gradients(
    make_samples: MakeSamples, model_folder: str, window: int | None
) -> None:
    config = AutoConfig.from_pretrained(model_folder)
    if window:
        config.use_sliding_window, config.sliding_window = True, window
        config.layer_types = ["sliding_attention", "full_attention"]
    torch.manual_seed(0)
    model = equip(AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION))
    samples = grouped(make_samples(7))
    found = []
    for share in (True, False):
        packed = pack(samples, CPU, merge=share)
        values = model.distribution(packed).log_probs(packed.targets)
        model.zero_grad()
        (values * torch.linspace(-1, 1, len(values))).sum().backward()
        found.append((values.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    assert pack(samples, CPU).input_ids.numel() < packed.input_ids.numel()
    for ours, apart in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours, apart, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)


def test_a_zero_id_at_the_end_of_a_pack_changes_nothing(
    make_trainer: MakeTrainer, make_samples: MakeSamples, plain_model: PreTrainedModel
) -> None:
    """Token 0 is an ordinary token: guessing padding from trailing zeros would drop it."""
    samples = make_samples(3)
    for sample in samples:
        sample.tokens[-3:] = [0, 0, 0][: len(sample.tokens)]
    found = make_trainer().log_probs(samples)
    for sample, values in zip(samples, found, strict=True):
        assert len(values) == sample.response_length
        assert values == pytest.approx(plain_log_probs(plain_model, sample), abs=2e-5)


def test_a_sliding_window_applies_inside_each_sample(
    make_args: MakeArgs, make_samples: MakeSamples, model_folder: str, tmp_path: Path
) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from slime.training.fsdp import FSDPTrainer

    torch.manual_seed(3)
    config = Qwen3Config.from_pretrained(model_folder)
    config.use_sliding_window, config.sliding_window = True, 4
    config.layer_types = ["sliding_attention", "full_attention"]
    config._attn_implementation = "eager"
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(tmp_path / "windowed")
    samples = make_samples(4)
    trainer = FSDPTrainer(make_args(hf_checkpoint=str(tmp_path / "windowed")))
    for sample, values in zip(samples, trainer.log_probs(samples), strict=True):
        assert values == pytest.approx(plain_log_probs(model, sample), abs=2e-5)
    trainer.close()
