"""Tests the decays of linear attention, in fp32 in a bf16 model: through steps, files and other ranks."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer, RunRanks

DECAYS = ("A_log", "dt_bias")
DIVISIONS: dict[str, dict[str, Any]] = {
    "tensor_pipeline": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2},
    "shared": {"tensor_model_parallel_size": 2, "use_distributed_optimizer": True},
    "context_shared": {"context_parallel_size": 2, "use_distributed_optimizer": True},
}
RANKS = """
import pickle, sys
import torch
from slime.training.megatron import MegatronTrainer
folder = sys.argv[1]
torch.set_num_threads(1)
jobs, samples = pickle.load(open(folder + "/order", "rb"))


def work(rank):
    results = {}
    for name, args in jobs.items():
        trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
        trainer.export_weights(f"{folder}/{name}_first", 1)
        trainer.train(0, samples)
        trainer.save(0, 1, 0)
        results[name] = trainer.export_weights(f"{folder}/{name}_trained", 2)
    pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""


@pytest.fixture
def flags(folders: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """Returns the flags of a bf16 model with fp32 decays in two layers, one for each pipeline stage."""
    folder = copytree(folders["qwen3_5"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"dtype": "bfloat16", "num_hidden_layers": 4, "layer_types": 2 * config["layer_types"]}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    for name in list(tensors):
        for number in range(2):
            later = name.replace(f"layers.{number}.", f"layers.{number + 2}.")
            tensors.setdefault(later, tensors[name].clone())
    halved = {name: x if name.endswith(DECAYS) else x.bfloat16() for name, x in tensors.items()}
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})
    model = str(folder)
    served = {"rollout_backend": "sglang", "rollout_num_gpus": 1}
    return {"hf_checkpoint": model, "ref_load": model, "bf16": True, "lr": 1e-2, **served}


def decays_in(folder: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "model.safetensors")
    found = {name: x for name, x in tensors.items() if name.endswith(DECAYS)}
    assert len(found) == 4 and all(x.dtype == torch.float32 for x in found.values())
    assert all(x.dtype == torch.bfloat16 for name, x in tensors.items() if name not in found)
    return found


def test_fp32_decays_are_trained_and_exported_in_fp32_with_any_parallelism(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    flags: dict[str, Any],
    run_ranks: RunRanks,
    tmp_path: Path,
) -> None:
    samples = make_samples(8)
    jobs = {name: make_args(**flags, **sizes, save=str(tmp_path / name)) for name, sizes in DIVISIONS.items()}
    results = run_ranks(RANKS, (jobs, samples))
    given = decays_in(Path(flags["hf_checkpoint"]))
    for name in DIVISIONS:
        first, trained = decays_in(tmp_path / f"{name}_first"), decays_in(tmp_path / f"{name}_trained")
        for key, values in given.items():
            assert torch.equal(first[key], values), (name, key)
            assert not torch.equal(trained[key], trained[key].bfloat16().float()), (name, key)
            # the first step of AdamW equals the learning rate
            assert_close(trained[key], values, atol=1.1e-2, rtol=0.02)
        resumed = make_trainer(**flags, save=str(tmp_path / name))
        assert resumed.load().rollout_id == 0
        assert resumed.export_weights(str(tmp_path / "again"), 3) == results[0][name]


@pytest.mark.parametrize(
    ("change", "dtype"), [({}, "float32"), ({"rollout_backend": "embedded"}, "bfloat16")]
)
def test_for_the_embedded_engine_decays_are_computed_and_exported_in_bf16(
    make_trainer: MakeTrainer, flags: dict[str, Any], change: dict[str, Any], dtype: str
) -> None:
    trainer = make_trainer(**flags | change)
    found = {name: x.dtype for name, x in trainer.model.core.named_parameters()}
    assert {x for name, x in found.items() if name.endswith(DECAYS)} == {getattr(torch, dtype)}
    assert {x for name, x in found.items() if not name.endswith(DECAYS)} == {torch.bfloat16}
