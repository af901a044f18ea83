"""Tests adapters on megatron-core's modules: PEFT's own, trained as under FSDP, merged out of place, stored as PEFT
does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from peft import PeftModel
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from slime.errors import CheckpointError, ConfigError
from slime.weights.checksum import weights_checksum
from tests.fakes.fixtures import MakeSamples, MakeTrainer

LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
TOPK = {
    "loss_spec_path": "openclaw_combine.loss:topk_select",
    "distill_topk": 4,
    "distill_subset_mode": "student",
}
JOBS: dict[str, dict[str, Any]] = {
    "policy": {"weight_decay": 0.1},
    "kl_to_the_base": {"use_kl_loss": True, "kl_loss_coef": 0.1, "global_batch_size": 2},
    "following_reference": {"use_kl_loss": True, "kl_loss_coef": 0.1, "ref_update_interval": 1},
    "some_modules": {"lora_target_modules": "k_proj,up_proj", "hf_checkpoint": "qwen2", "entropy_coef": 0.1},
    "taught_by_the_base": TOPK | {"gradient_checkpointing": True},
    "bf16": {"bf16": True, "loss_spec_path": "openclaw_combine.loss:combine"},
    "hybrid": {"hf_checkpoint": "qwen3_5", "entropy_coef": 0.1},
    "linear_attention_in_part": {
        "hf_checkpoint": "qwen3_5_vision",
        "lora_target_modules": "in_proj_qkv,in_proj_a,q_proj",
    },
    "beside_experts": {"lora_target_modules": "q_proj,v_proj", "hf_checkpoint": "qwen3_moe"},
}


def taught(samples: list[Any]) -> list[Any]:
    """Returns every sample with a hint before its prompt."""
    for sample in samples:
        sample.teacher_tokens_candidates = [[5, 9, *sample.tokens]]
    return samples


@pytest.fixture
def lora_trainer(make_trainer: MakeTrainer) -> MakeTrainer:
    return lambda **changes: make_trainer(**(LORA | changes))


@pytest.mark.parametrize("name", JOBS)
def test_three_rollouts_give_the_metrics_adapters_and_weights_of_fsdp(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, folders: dict[str, str], tmp_path: Path, name: str
) -> None:
    changes = {"teacher_source": "trainer", "hint_m": 1, "lr": 1e-3} | JOBS[name]
    folder = folders[changes.get("hf_checkpoint", "qwen3")]
    changes |= {"hf_checkpoint": folder, "ref_load": folder}
    tolerance = 3e-2 if changes.get("bf16") else 1e-5
    found = {}
    for backend in ("fsdp", "megatron"):
        trainer = lora_trainer(train_backend=backend, **changes)
        trainer.adapter_writer()(tmp_path / f"{backend}_first")
        metrics = [trainer.train(i, taught(make_samples(6, seed=i))) for i in range(3)]
        trainer.export_weights(str(tmp_path / backend), 1)
        trainer.adapter_writer()(tmp_path / f"{backend}_last")
        found[backend] = metrics
    first, last = (
        [load_file(tmp_path / f"{backend}_{when}" / "adapter_model.safetensors") for backend in found]
        for when in ("first", "last")
    )
    assert (weights_checksum(first[1]) == weights_checksum(first[0])) != ("bf16" in changes)
    for ours, theirs in zip(found["megatron"], found["fsdp"], strict=True):
        assert ours.keys() == theirs.keys()
        for key in ours.keys() - {"train_seconds"}:
            assert ours[key] == pytest.approx(theirs[key], abs=tolerance, rel=tolerance), key
    assert last[0].keys() == last[1].keys()
    # For a gradient near 0, Adam turns rounding into a step: processors differ
    for key, tensor in last[0].items():
        assert_close(last[1][key], tensor, atol=tolerance / 2, rtol=tolerance)
    weights = [load_file(tmp_path / backend / "model.safetensors") for backend in found]
    assert weights[0].keys() == weights[1].keys()
    for key, tensor in weights[0].items():
        assert_close(weights[1][key], tensor, atol=tolerance, rtol=tolerance)


def test_only_adapters_are_trained_and_the_base_keeps_every_byte(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path, folders: dict[str, str]
) -> None:
    trainer = lora_trainer()
    before = {name: x.detach().clone() for name, x in trainer.model.core.named_parameters()}
    fresh = trainer.export_weights(str(tmp_path / "fresh"), 0)
    assert fresh == weights_checksum(load_file(Path(folders["qwen3"]) / "model.safetensors"))
    for rollout_id in range(2):
        trainer.train(rollout_id, make_samples(4))
        trainer.export_weights(str(tmp_path / f"v{rollout_id}"), rollout_id)
    changed = {name for name, x in trainer.model.core.named_parameters() if not x.equal(before[name])}
    assert changed == {name for name in before if ".adapters." in name}
    assert len(changed) == 2 * 7 * 2


def test_a_resumed_run_equals_an_uninterrupted_one_and_peft_reads_its_adapter(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path, folders: dict[str, str]
) -> None:
    changes = {"lora_dropout": 0.2, "use_kl_loss": True, "kl_loss_coef": 0.1}
    whole = lora_trainer(**changes)
    whole.train(0, make_samples(6))
    checkpoint = Path(whole.save(0, 1, 0))
    whole.export_weights(str(tmp_path / "first"), 1)
    whole.train(1, make_samples(6, seed=1))
    resumed = lora_trainer(**changes, seed=99)
    assert resumed.load().rollout_id == 0
    resumed.train(1, make_samples(6, seed=1))
    sums = [one.export_weights(str(tmp_path / "out"), 2) for one in (whole, resumed)]
    assert sums[0] == sums[1]
    with pytest.raises(CheckpointError, match="was trained with --lora-rank 4"):
        lora_trainer(**changes, lora_rank=2).load()
    base = AutoModelForCausalLM.from_pretrained(folders["qwen3"])
    merged = PeftModel.from_pretrained(base, str(checkpoint / "adapter")).merge_and_unload().state_dict()
    for name, tensor in load_file(tmp_path / "first" / "model.safetensors").items():
        assert_close(tensor, merged[name], atol=1e-6, rtol=1e-6)


def test_adapter_dropout_is_disabled_outside_training(
    lora_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer = lora_trainer(lora_dropout=0.5)
    trainer.train(0, make_samples(4))
    samples = make_samples(4)
    assert trainer.log_probs(samples) == trainer.log_probs(samples)


@pytest.mark.parametrize("name", ["lm_head", "nothing", "q_proj,gate"])
def test_modules_unsupported_for_adapters_are_rejected(lora_trainer: MakeTrainer, name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"--lora-target-modules: .* cannot have adapters .* select from q_proj, k_proj"
    ):
        lora_trainer(lora_target_modules=name)


def test_adapters_on_all_modules_of_a_model_with_experts_are_rejected(
    lora_trainer: MakeTrainer, folders: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"experts cannot have adapters; select from"):
        lora_trainer(hf_checkpoint=folders["qwen3_moe"])
