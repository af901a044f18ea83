"""Tests the gate's own engine: its start, its models, and that it accepts versions of any dtype."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.embedded.model import build_model
from slime.engines.embedded.weights import WeightStore
from slime.engines.requests import WeightsError
from slime.errors import ConfigError
from slime.plan.gate_engine import usable_cpus
from slime.plan.host import HostUse, host_parts
from slime.plan.memory import TrainerMemory
from slime.plan.model_servers import GATE, model_servers
from slime.plan.shape import KNOWN, shape_of
from slime.ray.servers.specs import gate_spec
from slime.ray.versions.publisher import Publisher


def arguments(model: str, run_dir: Path, **more: object) -> Any:
    given = {
        "gate": True, "gate_engine": "cpu", "hf_checkpoint": model, "run_dir": str(run_dir),
        "rollout_num_gpus": 2, "rollout_num_gpus_per_engine": 2, "engine_count": 1, "rollout_external_engine_addrs": [],
        "prm_num_gpus": 0, "rented_judge": False, "prm_teacher_num_gpus": 0, "engine_start_limit": 60.0,
    }  # fmt: skip
    return SimpleNamespace(**{**given, **more})


def test_the_gate_engine_is_always_embedded_on_the_cpu(model_path: Path, tmp_path: Path) -> None:
    args = arguments(str(model_path), tmp_path)
    assert [(server.role, server.gpus) for server in model_servers(args)] == [("engine", 2), (GATE, 0)]
    spec = gate_spec(args, "gate-engine-0", 31000)
    command = " ".join(spec.command)
    assert "--backend embedded" in command and "--device cpu --cast-weights" in command
    assert (
        f"--threads {max(1, usable_cpus() // 2)}" in command
        and spec.role == GATE
        and spec.url == "http://127.0.0.1:31000"
    )
    for off in ({"gate": False}, {"gate_engine": "serving"}):
        assert [server.role for server in model_servers(arguments(str(model_path), tmp_path, **off))] == [
            "engine"
        ]


@pytest.mark.parametrize("name", ["Qwen3-30B-A3B", "Qwen3.5-4B"])
def test_a_model_unsupported_by_the_gate_engine_is_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(KNOWN[name]))
    with pytest.raises(ConfigError, match="--gate-engine cpu: the embedded engine supports no mixtures"):
        gate_spec(arguments(str(tmp_path), tmp_path), "gate-engine-0", 31000)


def test_the_gate_engine_answers_while_serving_engines_have_released_their_memory() -> None:
    published: Any = Publisher.__new__(Publisher)
    published.args, published.own_engines = SimpleNamespace(offload_rollout=True), ["serving"]
    published.gate_engines = []
    assert published.free_engines == []
    published.gate_engines = ["gate"]
    assert published.free_engines == ["gate"]


def test_the_gate_engine_accepts_versions_of_another_dtype(model_path: Path, tmp_path: Path) -> None:
    for file in model_path.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    stored = load_file(model_path / "model.safetensors")
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in stored.items()}
    save_file(halved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = build_model(str(model_path), "cpu", "float32")
    with pytest.raises(WeightsError):
        WeightStore(model, lambda install: install()).prepare(str(tmp_path), 1)
    store = WeightStore(model, lambda install: install(), cast=True)
    store.prepare(str(tmp_path), 1)
    found = store.weights_of(1).tensors
    assert all(torch.equal(found[name], halved[name].float()) for name in found)


def test_the_plan_includes_the_gate_engines_memory() -> None:
    trainer = TrainerMemory(shape_of(KNOWN["Qwen3-4B"], "Qwen3-4B"), gpus=4, tokens=8192)
    without, with_it = (host_parts(trainer, 8, 0.0, HostUse(gate_engine=on)) for on in (False, True))
    assert with_it.keys() - without.keys() == {"the gate's engine"}
    assert with_it["the gate's engine"] > 8 * trainer.shape.parameters, "two copies in fp32"
