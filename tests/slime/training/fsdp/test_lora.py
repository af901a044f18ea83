"""Tests adapters under FSDP: the trained, stored and merged weights, and the reference."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader
from transformers import AutoModelForCausalLM

from slime.errors import ConfigError, TrainError
from slime.plugins import load_attr
from slime.training import trainer as training
from slime.training.core.checkpoint import seed_all
from slime.training.fsdp.model import gather_trained
from slime.types import Sample
from slime.weights.checksum import weights_checksum
from tests import FAKES, ROOT
from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer
from tests.fakes.forks import Forks

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 8.0, "lora_dropout": 0.0}
EXAMPLE = str(FAKES / "example_custom_loss.py")
MERGE = ROOT / "slime" / "tools" / "merge_lora_adapter.py"
RANK = """
import json, pickle, sys
from slime.training.fsdp import FSDPTrainer
order, rank = sys.argv[1], int(sys.argv[2])
jobs, rollouts = pickle.load(open(order, "rb"))
exported = []
for args, wanted, folder in jobs:
    trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{order}.meet")
    trainer.load()
    for rollout_id in wanted:
        trainer.train(rollout_id, rollouts[rollout_id])
    exported.append(trainer.export_weights(folder, 9))
    trainer.save(wanted[-1], version=2, parent=1)
json.dump(exported, open(f"{order}.exported{rank}", "w"))
trainer.close()
"""


@pytest.fixture
def lora_trainer(make_trainer: MakeTrainer) -> MakeTrainer:
    return lambda **changes: make_trainer(**(LORA | changes))


def state_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def run_two_ranks(
    forks: Forks, jobs: list[tuple[Any, list[int], str]], rollouts: list[list[Sample]], order: Path
) -> list[str]:
    """Runs the jobs in two fresh processes; returns the checksums of their exported weights."""
    order.write_bytes(pickle.dumps((jobs, rollouts)))
    forks.run(RANK, order.parent, *([order, rank] for rank in range(2)))
    exported: list[list[str]] = [json.loads(Path(f"{order}.exported{rank}").read_text()) for rank in range(2)]
    assert exported[0] == exported[1]
    return exported[0]


def test_only_adapters_are_trained_and_the_base_keeps_every_byte(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trainer = lora_trainer(weight_decay=0.1)
    before = state_of(trainer)
    for rollout_id in range(2):
        trainer.train(rollout_id, make_samples(4))
        trainer.export_weights(str(tmp_path / f"v{rollout_id}"), rollout_id)
    after = state_of(trainer)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if ".lora_" in name}
    assert len(changed) == 2 * 7 * 2
    optimized = sum(p.numel() for group in trainer.learner.optimizer.param_groups for p in group["params"])
    assert optimized == sum(after[name].numel() for name in changed)


def test_initializing_adapters_changes_no_other_random_state(
    lora_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank draws the same adapters, and continues with its own random numbers, also on GPUs."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    first = lora_trainer(seed=3)
    seeds, state = set(seeded), torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(torch.get_rng_state(), state)
    seeded.clear()
    monkeypatch.setattr(training, "seed_all", lambda seed: seed_all(seed + 5))
    second = lora_trainer(seed=3)
    assert seeds == {3} and set(seeded) == {8}
    theirs = state_of(second)
    assert all(torch.equal(theirs[name], tensor) for name, tensor in state_of(first).items())


def test_adapters_are_gathered_in_fp32_even_after_a_pass_without_gradients(
    lora_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    """After a pass FSDP keeps the bf16 copies of the outermost modules."""
    trainer, samples = lora_trainer(lora_modules_to_save="norm", bf16=True), make_samples(3)
    trainer.train(0, samples)
    expected = gather_trained(trainer.model, keep=True)
    trainer.log_probs(samples)
    found = gather_trained(trainer.model, keep=True)
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_fresh_adapters_change_nothing_and_their_export_is_the_base(
    lora_trainer: MakeTrainer, model_folder: str, tmp_path: Path
) -> None:
    checksum = lora_trainer().export_weights(str(tmp_path / "out"), 0)
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    assert checksum == weights_checksum(base.state_dict())


def test_exported_weights_are_an_equivalent_full_model(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, model_folder: str, tmp_path: Path
) -> None:
    trainer = lora_trainer(lora_alpha=32.0)
    samples = make_samples(2, loss_mask=None, temperature=1.0)
    trainer.train(0, samples)
    checksum = trainer.export_weights(str(tmp_path / "out"), 1)
    assert trainer.export_weights(str(tmp_path / "again"), 2) == checksum
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored.keys() == load_file(Path(model_folder) / "model.safetensors").keys()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    sample = samples[0]
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([sample.tokens])).logits[0], -1)
    rows = torch.arange(sample.prompt_length, len(sample.tokens))
    expected = table[rows - 1, torch.tensor(sample.tokens)[rows]]
    assert trainer.log_probs([sample])[0] == pytest.approx(expected.tolist(), abs=1e-5)


def test_the_reference_is_the_base_with_disabled_adapters(
    lora_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    samples = make_samples(4, temperature=1.0)
    trainer = lora_trainer(use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="k3")
    assert trainer.reference.model is trainer.model
    assert trainer.train(0, samples)["kl_loss"] == 0.0
    metrics = [trainer.train(i, samples) for i in (1, 2)]
    assert metrics[1]["kl_loss"] > metrics[0]["kl_loss"] > 1e-6
    assert all(values["grad_norm"] > 0 for values in metrics)
    whole = lora_trainer(use_lora=False, use_kl_loss=True, kl_loss_coef=0.1)
    assert whole.reference.model is not whole.model


def test_another_reference_model_is_loaded_beside_the_adapters(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    first = lora_trainer()
    first.train(0, make_samples(2))
    first.export_weights(str(tmp_path / "other"), 1)
    trainer = lora_trainer(
        use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="k3", ref_load=str(tmp_path / "other")
    )
    assert trainer.reference.model is not trainer.model
    assert trainer.train(0, make_samples(2))["kl_loss"] > 1e-6


RESUMED = LORA | {"lora_dropout": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.05}


def test_resuming_adapters_is_bit_exact(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    rollouts = [make_samples(5, seed=seed) for seed in range(4)]
    straight = make_trainer(**RESUMED, save=str(tmp_path / "straight"))
    for rollout_id in range(4):
        straight.train(rollout_id, rollouts[rollout_id])
    expected = straight.export_weights(str(tmp_path / "out"), 1)
    first = make_trainer(**RESUMED)
    for rollout_id in range(2):
        first.train(rollout_id, rollouts[rollout_id])
    first.save(1, version=2, parent=1)
    second = make_trainer(**RESUMED, seed=99)
    assert second.load().rollout_id == 1
    for rollout_id in range(2, 4):
        second.train(rollout_id, rollouts[rollout_id])
    assert second.export_weights(str(tmp_path / "out"), 1) == expected


def test_two_ranks_resume_adapters_bit_exactly(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    fsdp_forks: Forks,
    tmp_path: Path,
) -> None:
    """Rank 0 must not wait in a broadcast for ranks that wait at a barrier."""
    rollouts = [make_samples(5, seed=seed) for seed in range(4)]
    straight = make_args(**RESUMED, save=str(tmp_path / "straight"))
    halved = make_args(**RESUMED, save=str(tmp_path / "halved"))
    out = str(tmp_path / "out")
    jobs = [(straight, [0, 1, 2, 3], out), (halved, [0, 1], out), (halved, [2, 3], out)]
    expected, checkpointed, resumed = run_two_ranks(fsdp_forks, jobs, rollouts, tmp_path / "order")
    assert resumed == expected
    one = make_trainer(**RESUMED, load=str(tmp_path / "straight"), save=str(tmp_path / "one"))
    assert one.load().rollout_id == 3
    assert one.export_weights(out, 1) == expected != checkpointed


def test_a_checkpoint_contains_the_trained_weights_without_the_base(
    lora_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer = lora_trainer(lora_modules_to_save="norm")
    trainer.train(0, make_samples(3))
    path = Path(trainer.save(0, version=1, parent=0))
    stored = load_file(path / "adapter" / "adapter_model.safetensors")
    trained = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert len(stored) == len(trained) == 2 * 7 * 2 + 2 * 4 + 1  # every module whose name ends with norm
    restored = lora_trainer(lora_modules_to_save="norm", seed=7)
    restored.load()
    expected, found = state_of(trainer), state_of(restored)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    kept = FileSystemReader(path / "trainer").read_metadata().state_dict_metadata
    assert {name for name in kept if name.startswith("model.")} == {f"model.{name}" for name in trained}


def test_a_module_trained_as_a_whole_is_exported(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    trainer = lora_trainer(lora_modules_to_save="norm")
    trainer.train(0, make_samples(3))
    trainer.export_weights(str(tmp_path / "out"), 1)
    stored = load_file(tmp_path / "out" / "model.safetensors")["model.norm.weight"]
    assert not torch.equal(stored, torch.ones_like(stored))
    name = "base_model.model.model.norm.modules_to_save.default.weight"
    assert torch.equal(stored, state_of(trainer)[name])


def test_a_checkpoint_with_other_adapters_is_rejected(
    lora_trainer: MakeTrainer, make_samples: MakeSamples
) -> None:
    trainer = lora_trainer()
    trainer.save(0, version=1, parent=0)
    with pytest.raises(TrainError, match=r"--lora-rank 4 .*--lora-rank 8"):
        lora_trainer(lora_rank=8).load()
    with pytest.raises(TrainError, match="no LoRA"):
        lora_trainer(use_lora=False).load()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lora_target_modules": "no_such_proj"}, "cannot add LoRA"),
        ({"lora_target_modules": "embed_tokens"}, "tied"),
        ({"lora_modules_to_save": "lm_head"}, "tied"),
        ({"lora_modules_to_save": "no_such_module"}, "no module 'no_such_module'"),
    ],
)
def test_modules_without_adapter_support_are_rejected_in_one_line(
    lora_trainer: MakeTrainer, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        lora_trainer(**changes)
    assert "\n" not in str(caught.value)


def test_target_modules_rank_scale_and_dropout_act(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    flags: list[dict[str, Any]] = [
        {},
        {"lora_rank": 2},
        {"lora_alpha": 16.0},
        {"lora_dropout": 0.5},
        {"lora_target_modules": "q_proj,v_proj"},
        {"gradient_checkpointing": True, "lora_modules_to_save": "norm"},
    ]
    seen = set()
    for position, changes in enumerate(flags):
        trainer = lora_trainer(**changes)
        trainer.train(0, make_samples(3))
        seen.add(trainer.export_weights(str(tmp_path / str(position)), 1))
    assert len(seen) == len(flags)
    assert not any(
        "k_proj.lora" in name for name in state_of(lora_trainer(lora_target_modules="q_proj,v_proj"))
    )


MATRIX: list[dict[str, Any]] = [
    {"loss_type": "sft_loss"},
    {"loss_type": "custom_loss", "custom_loss_function_path": EXAMPLE},
    *(
        {"advantage_estimator": name}
        for name in ("grpo", "gspo", "cispo", "step_wise", "on_policy_distillation")
    ),
    *(
        {"advantage_estimator": f"reinforce_plus_plus{name}", "normalize_advantages": True, "kl_coef": 0.1}
        for name in ("", "_baseline")
    ),
    {"use_kl_loss": True, "kl_loss_coef": 0.5, "use_unbiased_kl": True, "kl_loss_type": "k3"},
    {"eps_clip_c": 1.001, "entropy_coef": 0.1, "calculate_per_token_loss": True},
    {"use_opsm": True, "use_tis": True, "use_opd": True, "opd_kl_coef": 0.5},
    {"use_tis": True, "tis_mode": "icepop", "tis_clip": 50.0, "tis_clip_low": 0.01},
    {"advantage_estimator": "ppo", "kl_coef": 0.1, "lambd": 0.9},
    {"use_rollout_logprobs": True, "log_probs_chunk_size": 4},
    {"get_mismatch_metrics": True, "ref_update_interval": 1, "use_kl_loss": True, "kl_loss_coef": 0.1},
    {"loss_spec_path": "openclaw_combine.loss:combine", "bf16": True},
]


@pytest.mark.parametrize(
    "changes", MATRIX, ids=lambda changes: "-".join(str(v) for v in changes.values())[-60:]
)
def test_every_loss_works_with_adapters(
    lora_trainer: MakeTrainer, make_samples: MakeSamples, changes: dict[str, Any]
) -> None:
    samples = make_samples(6)
    for sample in samples:
        sample.rollout_log_probs = [-1.5] * sample.response_length
        sample.teacher_log_probs = [-1.0] * sample.response_length
    trainer = lora_trainer(global_batch_size=3, max_tokens_per_gpu=40, **changes)
    before = state_of(trainer)
    metrics = [trainer.train(i, samples) for i in range(2)]
    assert all(values["grad_norm"] > 0 for values in metrics)
    after = state_of(trainer)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        name for name in before if ".lora_" in name
    }


def test_the_merge_tool_produces_the_exported_weights(
    lora_trainer: MakeTrainer,
    make_samples: MakeSamples,
    model_folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A merge without the factor alpha / rank gives other weights."""
    trainer = lora_trainer(lora_alpha=32.0, lora_modules_to_save="norm")
    trainer.train(0, make_samples(3))
    checkpoint = trainer.save(0, version=1, parent=0)
    trainer.export_weights(str(tmp_path / "exported"), 1)
    output = tmp_path / "merged"
    words = ["--base-model", model_folder, "--adapter", checkpoint, "--output", str(output)]
    merge = load_attr(f"{MERGE}:main")
    assert merge(words) == 0
    found = load_file(output / "model.safetensors")
    for name, tensor in load_file(tmp_path / "exported" / "model.safetensors").items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=1e-6)
    assert (output / "tokenizer_config.json").is_file()
    assert merge(words) == 2
    assert "add -f" in capsys.readouterr().err
    assert merge([*words, "-f"]) == 0
    assert merge([*words[:-1], model_folder, "-f"]) == 2
