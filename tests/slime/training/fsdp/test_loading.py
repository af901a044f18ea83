"""Tests loading a model's weights, of which each rank reads only its own rows. The process group is fake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from slime.errors import ConfigError
from slime.training.fsdp.loading import load_critic, load_model, open_shards
from slime.weights.files import WeightFiles
from tests.fakes.fixtures import MakeTrainingArgs

RANKS = 3
WHOLE = {
    "use_lora": True,
    "lora_rank": 4,
    "lora_alpha": 8.0,
    "lora_dropout": 0.0,
    "lora_modules_to_save": "embed_tokens",
}


@pytest.fixture
def mesh_of() -> Iterator[Callable[[int], Any]]:
    """f(rank): the mesh of one of three ranks that do not communicate."""

    def mesh(rank: int) -> Any:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        return init_device_mesh("cpu", (RANKS,))

    yield mesh
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, write_qwen3: Callable[..., str]) -> dict[str, str]:
    """Returns a tied model in bf16, an untied one in two files, one with experts."""
    tied = write_qwen3(tmp_path_factory.mktemp("tied"), 1, vocab_size=50)
    file = Path(tied, "model.safetensors")
    save_file({name: x.bfloat16() for name, x in load_file(file).items()}, file, metadata={"format": "pt"})
    untied = write_qwen3(tmp_path_factory.mktemp("untied"), 2, vocab_size=50, tie_word_embeddings=False)
    in_two_files(Path(untied))
    experts = tmp_path_factory.mktemp("experts")
    torch.manual_seed(3)
    Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=64,
            moe_intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
        )
    ).save_pretrained(experts)
    return {"tied": tied, "untied": untied, "experts": str(experts)}


def in_two_files(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files: dict[str, str] = {}
    for number in range(2):
        own = {name: x for place, (name, x) in enumerate(weights.items()) if place % 2 == number}
        save_file(own, folder / f"part-{number}.safetensors", metadata={"format": "pt"})
        files |= dict.fromkeys(own, f"part-{number}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))


def expected_rows(whole: torch.Tensor, rank: int) -> torch.Tensor:
    chunks = whole.chunk(RANKS)
    return chunks[rank] if rank < len(chunks) else whole[:0]


@pytest.mark.parametrize("kind", ["tied", "untied", "experts"])
def test_every_rank_has_the_exact_weights_that_transformers_loads(
    kind: str, folders: dict[str, str], mesh_of: Callable[[int], DeviceMesh], training_args: MakeTrainingArgs
) -> None:
    folder, args = folders[kind], training_args(folders[kind])
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    for rank in range(RANKS):
        state = load_model(folder, mesh_of(rank), args).state_dict()
        assert state.keys() == expected.keys()
        for name, tensor in state.items():
            assert isinstance(tensor, DTensor) and tensor.dtype == torch.float32
            assert torch.equal(tensor.to_local(), expected_rows(expected[name], rank)), name


def test_adapters_have_pefts_initial_values_and_fully_saved_modules_their_weights(
    folders: dict[str, str], mesh_of: Callable[[int], DeviceMesh], training_args: MakeTrainingArgs
) -> None:
    from slime.training.fsdp.lora import add_adapters

    args = training_args(folders["untied"], **WHOLE)
    base = AutoModelForCausalLM.from_pretrained(folders["untied"], dtype=torch.float32)
    expected = add_adapters(base, args).state_dict()
    state = load_model(folders["untied"], mesh_of(1), args).state_dict()
    assert state.keys() == expected.keys()
    assert sum("modules_to_save" in name for name in state) == 1
    for name, tensor in state.items():
        assert torch.equal(tensor.to_local(), expected_rows(expected[name], 1)), name


def test_a_critic_loads_the_models_body_and_initializes_its_head(
    folders: dict[str, str], mesh_of: Callable[[int], DeviceMesh], training_args: MakeTrainingArgs
) -> None:
    args = training_args(folders["tied"], critic_load=None)
    body = AutoModelForCausalLM.from_pretrained(folders["tied"], dtype=torch.float32).model.state_dict()
    state = load_critic(args, mesh_of(0)).state_dict()
    for name, tensor in body.items():
        assert torch.equal(state[f"body.{name}"].to_local(), expected_rows(tensor, 0)), name
    assert float(state["head.weight"].to_local().abs().sum()) > 0


@pytest.mark.parametrize("kind", ["tied", "untied", "experts"])
def test_a_rank_reads_only_its_share_of_the_files(
    kind: str,
    folders: dict[str, str],
    mesh_of: Callable[[int], DeviceMesh],
    training_args: MakeTrainingArgs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []
    for name in ("read", "part"):
        original = getattr(WeightFiles, name)

        def counted(self: WeightFiles, *words: object, ask: Any = original) -> torch.Tensor:
            tensor: torch.Tensor = ask(self, *words)
            read.append(tensor.numel())
            return tensor

        monkeypatch.setattr(WeightFiles, name, counted)
    model = load_model(folders[kind], mesh_of(1), training_args(folders[kind]))
    assert sum(read) == sum(p.to_local().numel() for p in model.parameters())


def test_formats_that_only_transformers_reads_are_loaded_by_it(
    folders: dict[str, str],
    mesh_of: Callable[[int], DeviceMesh],
    training_args: MakeTrainingArgs,
    tmp_path: Path,
) -> None:
    expected = AutoModelForCausalLM.from_pretrained(folders["tied"], dtype=torch.float32)
    torch.save(expected.state_dict(), tmp_path / "pytorch_model.bin")
    expected.config.save_pretrained(tmp_path)
    assert open_shards(expected.config, str(tmp_path)) is None
    state = load_model(str(tmp_path), mesh_of(0), training_args(str(tmp_path))).state_dict()
    assert torch.equal(
        state["model.norm.weight"].to_local(), expected_rows(expected.model.norm.weight.detach(), 0)
    )


def test_a_tensor_of_another_shape_than_the_configurations_is_refused(
    folders: dict[str, str],
    mesh_of: Callable[[int], DeviceMesh],
    training_args: MakeTrainingArgs,
    tmp_path: Path,
) -> None:
    weights = load_file(Path(folders["tied"], "model.safetensors"))
    weights["model.norm.weight"] = torch.ones(8)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes(Path(folders["tied"], "config.json").read_bytes())
    with pytest.raises(ConfigError, match=r"model.norm.weight has shape \[8\].*requires \[32\]"):
        load_model(str(tmp_path), mesh_of(0), training_args(str(tmp_path)))


def test_megatrons_ranks_read_only_their_shards(folders: dict[str, str]) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    from transformers import AutoConfig

    from slime.training.megatron.weight_map import entry_of
    from slime.training.megatron.weights import WeightMap

    hf = AutoConfig.from_pretrained(folders["untied"])
    named = ["decoder.layers.1.self_attention.linear_qkv.weight", "decoder.layers.0.mlp.linear_fc1.weight"]
    named += ["decoder.layers.0.mlp.linear_fc2.weight", "decoder.layers.0.input_layernorm.weight"]
    named += ["embedding.word_embeddings.weight", "output_layer.weight"]
    with WeightFiles(folders["untied"]) as files:
        for entry in (entry_of(name, hf, 0) for name in named):
            parts = []
            for rank in range(2):
                weights = WeightMap.__new__(WeightMap)
                weights.hf, weights.model = hf, SimpleNamespace(vocab_size=64)  # type: ignore[assignment]
                weights.parallel = SimpleNamespace(tp=SimpleNamespace(rank=rank, size=2))  # type: ignore[assignment]
                parts.append(weights._read(entry, files))
            for source, tensor in zip(entry.sources, weights.separate(entry, parts), strict=True):
                assert torch.equal(tensor, files.read(source)), source
