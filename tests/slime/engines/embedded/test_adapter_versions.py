"""Tests weight versions that contain only an adapter: how an engine loads them, and which it rejects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.embedded.model import build_model
from slime.engines.embedded.weights import WeightStore
from slime.engines.requests import WeightsError
from slime.weights.checksum import weights_checksum
from tests.fakes.fixtures import MakeSamples, MakeTrainer

Export = Callable[..., tuple[str, str]]

LORA: dict[str, Any] = {"use_lora": True, "lora_rank": 4, "lora_alpha": 32.0, "lora_dropout": 0.0}
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def store(model_folder: str) -> WeightStore:
    """Returns an engine's weight store, with the base live as version 0."""
    found = WeightStore(build_model(model_folder, "cpu", "float32"), lambda install: install())
    found.load(model_folder, 0)
    return found


@pytest.fixture
def export(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> Callable[..., tuple[str, str]]:
    """f(**flags): the folder of the adapter after a step, and its checksum; the merged model is next to it."""

    def make(**flags: object) -> tuple[str, str]:
        trainer = make_trainer(**(LORA | flags))
        trainer.train(0, make_samples(4))
        trainer.export_weights(str(tmp_path / "merged"), 1)
        return str(tmp_path / "alone"), trainer.export_weights(str(tmp_path / "alone"), 1, whole=False)

    return make


def test_an_adapter_artifact_is_loaded_as_the_merged_model(
    store: WeightStore, export: Export, tmp_path: Path
) -> None:
    folder, checksum = export()
    assert {path.name for path in Path(folder).iterdir()} >= {"adapter_config.json", WEIGHTS}
    assert not (Path(folder) / "model.safetensors").exists()
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    before = {name: tensor.clone() for name, tensor in store._model.tensors.items()}
    assert store.prepare(folder, 1).checksum == checksum
    assert all(torch.equal(tensor, before[name]) for name, tensor in store._model.tensors.items())
    assert store.switch(1).checksum == checksum == weights_checksum(load_file(Path(folder) / WEIGHTS))
    for name, tensor in store._model.tensors.items():
        torch.testing.assert_close(tensor, merged[name], rtol=1e-6, atol=1e-7)
    assert not torch.equal(
        merged["model.layers.0.mlp.up_proj.weight"], before["model.layers.0.mlp.up_proj.weight"]
    )
    assert store.prepare(str(tmp_path / "merged"), 2).checksum == weights_checksum(merged)


def test_fully_trained_modules_are_loaded_with_the_adapter(
    store: WeightStore, export: Export, tmp_path: Path
) -> None:
    folder, checksum = export(lora_modules_to_save="input_layernorm", lora_target_modules="q_proj")
    name = "model.layers.1.input_layernorm.weight"
    assert any("input_layernorm" in key for key in load_file(Path(folder) / WEIGHTS))
    store.prepare(folder, 1)
    assert store.switch(1).checksum == checksum
    assert torch.equal(store._model.tensors[name], load_file(tmp_path / "merged" / "model.safetensors")[name])


def test_a_restarted_engine_loads_base_and_adapter(store: WeightStore, export: Export) -> None:
    folder, checksum = export()
    assert store.load(folder, 7).checksum == checksum


def rewrite(folder: str, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(Path(folder) / WEIGHTS)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, Path(folder) / WEIGHTS)


def reconfigure(folder: str, **changes: object) -> None:
    path = Path(folder) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


UP = "base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (
            lambda f: rewrite(f, lambda t: t.pop(UP)),
            "lacks one of the two LoRA factors of model.layers.0.mlp.up_proj",
        ),
        (lambda f: rewrite(f, lambda t: t.update({UP: t[UP][1:]})), "do not match the weight's shape"),
        (lambda f: rewrite(f, lambda t: t[UP].fill_(float("inf"))), "not finite"),
        (
            lambda f: rewrite(f, lambda t: t.update({"base_model.model.extra": torch.ones(2)})),
            "changes extra, which",
        ),
        (lambda f: reconfigure(f, use_dora=True), "use plain LoRA"),
        (lambda f: reconfigure(f, base_model_name_or_path="/nowhere"), "/nowhere is not a folder"),
        (lambda f: (Path(f) / WEIGHTS).write_bytes(b"cut short"), "cannot read the adapter in"),
    ],
)
def test_a_mismatching_adapter_is_rejected_and_the_live_weights_stay(
    store: WeightStore, export: Export, spoil: Callable[[str], Any], complaint: str
) -> None:
    folder, _ = export()
    spoil(folder)
    with pytest.raises(WeightsError, match=complaint):
        store.prepare(folder, 1)
    assert store.live.version == 0
