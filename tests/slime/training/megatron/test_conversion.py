"""Compares checkpoints of Megatron-LM and Hugging Face folders with megatron-core's own reading and writing."""

from __future__ import annotations

import importlib.util
import json
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed import distributed_c10d
from transformers import AutoConfig

from slime.arguments import parse_args
from slime.errors import CheckpointError, ConfigError
from slime.torch_dist.reading import find
from tests import ROOT

TOOLS = ROOT / "slime" / "tools"
MODELS = ["qwen3", "qwen2", "llama", "qwen2_moe", "qwen3_moe", "qwen3_moe_sparse"]


def tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks up its module there
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


HF_TO_TORCH_DIST, TORCH_DIST_TO_HF = tool("convert_hf_to_torch_dist"), tool("convert_torch_dist_to_hf")


def to_torch_dist(*words: object) -> int:
    return int(HF_TO_TORCH_DIST.main([str(word) for word in words]))


def to_hf(source: Path, output: Path, origin: str, *words: object) -> int:
    places = ["--input-dir", source, "--output-dir", output, "--origin-hf-dir", origin]
    return int(TORCH_DIST_TO_HF.main([str(word) for word in (*places, *words)]))


def tensors(folder: str | Path) -> dict[str, torch.Tensor]:
    return {
        name: x for file in sorted(Path(folder).glob("*.safetensors")) for name, x in load_file(file).items()
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields megatron-core's own model of a configuration: its layers, its experts, its names."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    # Megatron-LM's own ranks send each other its classes; a trainer of another test may have allowed only ours.
    monkeypatch.setattr(distributed_c10d, "_unpickler", pickle.Unpickler)
    parallel_state.destroy_model_parallel()  # left by a trainer of another test in this process
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()

    def build(folder: str) -> Any:
        hf = AutoConfig.from_pretrained(folder)
        mixed = hf.model_type.endswith("moe")
        experts = (
            {
                "num_moe_experts": hf.num_experts,
                "moe_ffn_hidden_size": hf.moe_intermediate_size,
                "moe_layer_freq": [
                    int(i not in hf.mlp_only_layers and (i + 1) % hf.decoder_sparse_step == 0)
                    for i in range(hf.num_hidden_layers)
                ],
                "moe_token_dispatcher_type": "allgather",
                "moe_shared_expert_intermediate_size": getattr(hf, "shared_expert_intermediate_size", None),
                "moe_shared_expert_gate": hf.model_type == "qwen2_moe",
            }
            if mixed
            else {}
        )
        config = TransformerConfig(
            num_layers=hf.num_hidden_layers,
            hidden_size=hf.hidden_size,
            ffn_hidden_size=hf.intermediate_size,
            num_attention_heads=hf.num_attention_heads,
            num_query_groups=hf.num_key_value_heads,
            kv_channels=getattr(hf, "head_dim", None),
            normalization="RMSNorm",
            gated_linear_unit=True,
            add_bias_linear=False,
            add_qkv_bias=hf.model_type.startswith("qwen2"),
            qk_layernorm=hf.model_type.startswith("qwen3"),
            use_cpu_initialization=True,
            perform_initialization=False,
            **experts,
        )
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
        tied = hf.tie_word_embeddings
        return GPTModel(
            config, spec, 64, 128, share_embeddings_and_output_weights=tied, position_embedding_type="none"
        )

    yield build
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_checkpoint_round_trips(folders: dict[str, str], tmp_path: Path, name: str) -> None:
    assert to_torch_dist("--hf-checkpoint", folders[name], "--save", tmp_path / "dist") == 0
    assert to_hf(tmp_path / "dist", tmp_path / "hf", folders[name]) == 0
    assert same(tensors(tmp_path / "hf"), tensors(folders[name]))
    assert (tmp_path / "hf" / "config.json").read_text() == (Path(folders[name]) / "config.json").read_text()


@pytest.mark.parametrize("name", MODELS)
def test_megatron_core_reads_and_writes_the_same_checkpoint(
    megatron: Any, folders: dict[str, str], tmp_path: Path, name: str
) -> None:
    from megatron.core import dist_checkpointing

    to_torch_dist("--hf-checkpoint", folders[name], "--save", tmp_path / "dist")
    model = megatron(folders[name])
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    state = model.sharded_state_dict()
    read = dist_checkpointing.load(state, str(tmp_path / "dist" / "release"))
    model.load_state_dict(
        {key: x for key, x in read.items() if key in dict(model.named_parameters())}, strict=False
    )
    real = [
        x[:63] if "word_embeddings" in key or "output_layer" in key else x
        for key, x in model.named_parameters()
    ]
    assert not any(x.isnan().any() for x in real)
    (tmp_path / "own").mkdir()
    dist_checkpointing.save(model.sharded_state_dict(), str(tmp_path / "own"))
    assert to_hf(tmp_path / "own", tmp_path / "hf", folders[name]) == 0
    assert same(tensors(tmp_path / "hf"), tensors(folders[name]))


def test_an_iteration_is_found_and_sharded_files_are_read(folders: dict[str, str], tmp_path: Path) -> None:
    to_torch_dist("--hf-checkpoint", folders["qwen3"], "--save", tmp_path)
    (tmp_path / "release").rename(tmp_path / "iter_0000012")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("12")
    assert to_hf(tmp_path, tmp_path / "hf", folders["qwen3"], "--chunk-size", 8000) == 0
    files = sorted(path.name for path in (tmp_path / "hf").glob("*.safetensors"))
    assert len(files) > 2
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == files
    assert same(tensors(tmp_path / "hf"), tensors(folders["qwen3"]))


@pytest.mark.parametrize("name", ["../other", "/other", "a/b", ".."])
def test_a_tracker_file_cannot_name_an_outside_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(name)
    with pytest.raises(CheckpointError):
        find(tmp_path)


def test_padding_rows_of_the_vocabulary_are_removed(folders: dict[str, str], tmp_path: Path) -> None:
    to_torch_dist("--hf-checkpoint", folders["llama"], "--save", tmp_path / "dist")
    assert to_hf(tmp_path / "dist", tmp_path / "hf", folders["llama"], "--vocab-size", 60) == 0
    assert tensors(tmp_path / "hf")["lm_head.weight"].shape[0] == 60
    assert AutoConfig.from_pretrained(tmp_path / "hf").vocab_size == 60


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--num-layers 3", "--num-layers 3 contradicts"),
        ("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size does not belong here"),
        ("--moe-aux-loss-coeff 0.1", "--moe-aux-loss-coeff 0.1 is not supported"),
    ],
)
def test_flags_that_contradict_the_model_are_refused(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, complaint: str
) -> None:
    assert to_torch_dist("--hf-checkpoint", folders["qwen3"], "--save", tmp_path / "a", *words.split()) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_vision"])
def test_linear_attention_is_not_converted(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert to_torch_dist("--hf-checkpoint", folders[name], "--save", tmp_path / "a") == 2
    assert "can be converted. Training needs no conversion" in capsys.readouterr().err


def test_matching_upstream_flags_are_accepted(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = "--num-layers 4 --hidden-size 32 --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 24 --swiglu"
    model = "--hf-checkpoint", folders["qwen3_moe"], "--save", tmp_path / "a"
    layers = "--moe-layer-freq", "[1,1,0,1]"
    assert to_torch_dist(*model, *shape.split(), "--rotary-base", 10000, "--moe-grouped-gemm", *layers) == 0
    assert to_torch_dist(*model, "-f", "--moe-layer-freq", "[1,1,1,1]") == 2
    assert "--moe-layer-freq [1,1,1,1] contradicts" in capsys.readouterr().err


def test_a_checkpoint_of_another_model_is_refused(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_torch_dist("--hf-checkpoint", folders["qwen3"], "--save", tmp_path / "dist")
    for other, complaint in (("qwen2", "it has no"), ("qwen3_moe", "it has")):
        assert to_hf(tmp_path / "dist", tmp_path / "hf", folders[other]) == 2
        assert complaint in capsys.readouterr().err
    smaller = shutil.copytree(folders["qwen3"], tmp_path / "smaller")
    config = json.loads((smaller / "config.json").read_text())
    (smaller / "config.json").write_text(json.dumps(config | {"hidden_size": 16}))
    assert to_hf(tmp_path / "dist", tmp_path / "hf", str(smaller)) == 2
    assert "is of another model: model.embed_tokens.weight is [63, 32]" in capsys.readouterr().err
    assert not (tmp_path / "hf").exists()


def test_existing_files_are_not_overwritten_unless_requested(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = "--hf-checkpoint", folders["qwen3"], "--save", tmp_path / "dist"
    assert to_torch_dist(*there) == 0
    assert to_torch_dist(*there) == 2
    assert "add -f" in capsys.readouterr().err
    assert to_torch_dist(*there, "-f") == 0
    assert to_hf(tmp_path / "dist", tmp_path, folders["qwen3"], "-f") == 2
    assert "would replace its own input" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--ref-load", "--load", "--save", "--hf-checkpoint"])
def test_a_run_explains_how_to_convert_a_megatron_checkpoint(
    folders: dict[str, str], tmp_path: Path, flag: str
) -> None:
    to_torch_dist("--hf-checkpoint", folders["qwen3"], "--save", tmp_path)
    words = ["--hf-checkpoint", folders["qwen3"], flag, str(tmp_path)]
    with pytest.raises(
        ConfigError, match=f"{flag} .* is a checkpoint of Megatron-LM .*convert_torch_dist_to_hf.py"
    ):
        parse_args(words, env={})


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


def test_an_index_that_runs_code_is_refused(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_torch_dist("--hf-checkpoint", folders["qwen3"], "--save", tmp_path / "dist")
    (tmp_path / "dist" / "release" / ".metadata").write_bytes(pickle.dumps(Evil()))
    assert to_hf(tmp_path / "dist", tmp_path / "hf", folders["qwen3"]) == 2
    assert "is not allowed in a checkpoint" in capsys.readouterr().err
