"""Compares the memory and cost planner with transformers' own models and with hand-computed numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoConfig, AutoModelForCausalLM

from slime.errors import ConfigError
from slime.plan.__main__ import main
from slime.plan.division import Division
from slime.plan.hardware import GIB, GPUS, _listed, named_gpu, parse_gpus
from slime.plan.host import PROCESS, HostUse, offloaded_bytes
from slime.plan.memory import (
    LOGIT_BLOCK,
    EngineMemory,
    TrainerMemory,
    activations,
    engine_parts,
    host_bytes,
    kv_tokens,
    trainer_parts,
)
from slime.plan.placement_plan import Batch, MemoryPlan, Server, host_problems, on_hosts, problems, step_flops
from slime.plan.report import as_text
from slime.plan.shape import KNOWN, read_shape, shape_of

QWEN3_4B = read_shape("Qwen3-4B")


@pytest.mark.parametrize("name", [name for name in KNOWN if "-2507" not in name])
def test_parameter_counts_match_transformers(name: str) -> None:
    config = dict(KNOWN[name])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    assert read_shape(name).parameters == sum(p.numel() for p in model.parameters())


def test_adapter_sizes_match_peft() -> None:
    from peft import LoraConfig, get_peft_model

    for name in ("Qwen3-0.6B", "Qwen3.5-4B"):
        config = dict(KNOWN[name])
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
            model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert read_shape(name).adapters(16) == trained


def test_a_qwen3_4b_token_needs_144_kib_of_kv_cache() -> None:
    assert QWEN3_4B.kv_bytes == 2 * 36 * 8 * 128 * 2 == 144 * 1024
    assert read_shape("Qwen3.5-4B").kv_bytes == 2 * 8 * 4 * 256 * 2  # only one layer in four caches tokens


def test_full_training_needs_sixteen_bytes_per_parameter_over_all_ranks() -> None:
    parts = trainer_parts(TrainerMemory(QWEN3_4B, gpus=4, tokens=8192))
    held = parts["weights"] + parts["gradients"] + parts["optimizer"]
    assert held == 16 * 4_022_468_096 / 4
    assert parts["logits"] == pytest.approx(4.8 * 8192 * 151936 + 12 * LOGIT_BLOCK)


def test_offloading_moves_these_bytes_to_the_cpu() -> None:
    plan = TrainerMemory(QWEN3_4B, gpus=4, tokens=8192, cpu_offload=True, frozen=(QWEN3_4B,))
    assert host_bytes(plan) == 20 * 4_022_468_096 / 4
    assert not {"weights", "gradients", "optimizer", "frozen models"} & set(trainer_parts(plan))
    assert host_bytes(replace(plan, cpu_offload=False)) == 0


def test_only_adapters_have_gradients_and_moments() -> None:
    parts = trainer_parts(TrainerMemory(QWEN3_4B, gpus=2, tokens=8192, lora_rank=16))
    adapters = QWEN3_4B.adapters(16)
    assert parts["weights"] == 4 * (4_022_468_096 + adapters) / 2
    assert (parts["gradients"], parts["optimizer"]) == (4 * adapters / 2, 8 * adapters / 2)


def test_four_bit_weights_take_slightly_over_half_a_byte() -> None:
    parts = trainer_parts(TrainerMemory(QWEN3_4B, gpus=1, tokens=8192, lora_rank=16, four_bit=True))
    assert parts["weights in 4 bits"] / QWEN3_4B.linear_parameters == pytest.approx(0.516, abs=0.001)
    assert parts["weights"] == pytest.approx(4 * (151936 * 2560 + QWEN3_4B.adapters(16)), rel=0.01)


def kept_by_autograd(layers: int, tokens: int, checkpointing: bool, **sizes: int) -> int:
    """Returns the bytes of all tensors except weights that a bf16 forward pass keeps for the backward pass."""
    config: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {
        "head_dim": 64,
        "intermediate_size": 384,
        "vocab_size": 64,
        "num_hidden_layers": layers,
        **sizes,
    }
    kind = "qwen3_moe" if "num_experts" in sizes else "qwen3"
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config)).to(torch.bfloat16).train()
    if checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        model.model(torch.randint(0, 64, (1, tokens)))
    return sum(kept.values())


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"hidden_size": 256},
        {"num_key_value_heads": 4},
        {"intermediate_size": 1024},
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96},
        {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 192, "hidden_size": 256},
    ],
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activation_memory_matches_autograd(sizes: dict[str, int], checkpointing: bool) -> None:
    torch.set_num_threads(1)
    kind = "qwen3_moe" if "num_experts" in sizes else "qwen3"
    config = {"model_type": kind, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"head_dim": 64, "intermediate_size": 384, "vocab_size": 64, **sizes}
    few, many = (shape_of(config | {"num_hidden_layers": layers}, "small") for layers in (1, 4))
    planned = [activations(TrainerMemory(s, 1, 256, checkpointing=checkpointing)) for s in (few, many)]
    kept = [kept_by_autograd(layers, 256, checkpointing, **sizes) for layers in (1, 4)]
    assert planned[1] - planned[0] == pytest.approx(kept[1] - kept[0], rel=0.03)


def test_an_engines_cache_gets_the_memory_left_by_weights() -> None:
    engine = EngineMemory(QWEN3_4B, gpus=2, fraction=0.8, context=32768)
    own = 0.8 * (79.6 - 0.5) * GIB - 4_022_468_096
    assert engine_parts(engine, GPUS["H100"])["keys and values"] == pytest.approx(own)
    assert kv_tokens(engine, GPUS["H100"]) == int(own / (72 * 1024))  # half of the heads on each GPU
    # 8 heads on 16 GPUs: one on each, twice
    many = EngineMemory(QWEN3_4B, gpus=16, fraction=0.8, context=32768)
    left = engine_parts(many, GPUS["H100"])["keys and values"]
    assert kv_tokens(many, GPUS["H100"]) == int(left / (18 * 1024))


def test_a_step_costs_six_flops_per_parameter_and_token_and_two_per_forward() -> None:
    plan, batch = TrainerMemory(QWEN3_4B, 1, 8192), Batch(samples=2, length=1000, forwards=0)
    attention = 3 * 2 * 36 * 4096 * 1000
    assert step_flops(plan, batch) == 2000 * (6 * QWEN3_4B.computed + attention)
    more = step_flops(plan, replace(batch, forwards=1)) / step_flops(plan, batch)
    assert more == pytest.approx(4 / 3)


def test_a_30b_mixture_of_experts_computes_with_3b_parameters() -> None:
    shape = read_shape("Qwen3-30B-A3B")
    assert 30.5e9 < shape.parameters < 30.6e9
    assert shape.computed == pytest.approx(3.0e9, rel=0.05)
    assert shape.active == pytest.approx(3.35e9, rel=0.01)  # with the embedding
    assert QWEN3_4B.active == QWEN3_4B.parameters


def test_a_shared_expert_is_counted() -> None:
    config = AutoConfig.for_model("qwen2_moe", num_hidden_layers=4, num_experts=4, mlp_only_layers=[1])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert shape_of(config.to_dict(), "small").parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    "some", [{}, {"mlp_only_layers": [0, 5]}, {"decoder_sparse_step": 2, "mlp_only_layers": [1]}]
)
def test_dense_layers_of_mixtures_are_counted_as_dense(some: dict[str, Any]) -> None:
    config = KNOWN["Qwen3-30B-A3B"] | {"num_hidden_layers": 6, "num_experts": 4} | some
    sizes = {name: size for name, size in config.items() if name != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_moe", **sizes))
    shape = shape_of(config, "small")
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    in_experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    assert shape.experts_linear == in_experts


EXPERTS = read_shape("Qwen3-30B-A3B")


def test_experts_are_divided_over_ranks_and_dense_weights_are_sharded() -> None:
    plan = TrainerMemory(
        EXPERTS, gpus=16, tokens=8192, checkpointing=True, division=Division(tp=2, pp=2, ep=8)
    )
    rest = (EXPERTS.parameters - EXPERTS.ends - EXPERTS.experts_linear) / 4 + EXPERTS.embedding / 2
    parts = trainer_parts(plan)
    assert parts["weights"] == pytest.approx(2 * (rest + EXPERTS.experts_linear / 16), rel=1e-5)
    assert parts["optimizer"] == 6 * parts["weights"]
    assert parts["gradients"] == 2 * parts["weights"]


def test_replicas_shard_optimizer_states_of_dense_weights_but_hardly_of_experts() -> None:
    whole = TrainerMemory(EXPERTS, gpus=16, tokens=8192, division=Division(tp=2, ep=8))
    shared = replace(whole, division=Division(tp=2, ep=8, distributed_optimizer=True))
    rest = EXPERTS.parameters - EXPERTS.experts_linear
    assert trainer_parts(whole)["optimizer"] == pytest.approx(12 * (rest / 2 + EXPERTS.experts_linear / 8))
    assert trainer_parts(shared)["optimizer"] == pytest.approx(12 * (rest / 16 + EXPERTS.experts_linear / 16))
    offloaded = replace(shared, cpu_offload=True)
    assert host_bytes(offloaded) == trainer_parts(shared)["optimizer"]
    averaged = trainer_parts(replace(shared, averages=True))["optimizer"]
    assert averaged == pytest.approx(16 / 12 * trainer_parts(shared)["optimizer"]), "one more copy in fp32"
    assert "optimizer" not in trainer_parts(offloaded)


def test_a_parallel_layout_of_the_trainer_is_planned_or_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["--model", "Qwen3-30B-A3B", "--gpus", "16xH100", "--train-backend", "megatron"]
    usual += ["--actor", "8", "--rollout", "8", "--tp", "2"]
    experts = ["--expert-model-parallel-size", "8", "--use-distributed-optimizer"]
    assert main([*usual, *experts, "--max-tokens-per-gpu", "8192"]) == 1
    told = capsys.readouterr().out
    assert "30.53 billion parameters, 3.35 billion of them for each token" in told
    assert "--fsdp-cpu-offload; --pipeline-model-parallel-size" in told, (
        "experts are dealt to all ranks already"
    )
    half = [*experts, "--expert-model-parallel-size", "4", "--max-tokens-per-gpu", "8192"]
    assert main([*usual, *half]) == 1
    assert "--fsdp-cpu-offload; --expert-model-parallel-size" in capsys.readouterr().out
    assert main([*usual, *experts, "--fsdp-cpu-offload", "--max-tokens-per-gpu", "8192"]) == 0
    for words, complaint in (
        (["--expert-model-parallel-size", "3"], "must be a multiple of 1"),
        (
            ["--tensor-model-parallel-size", "8"],
            "has 4 attention or key-value heads, which are not divisible by 8",
        ),
        (["--pipeline-model-parallel-size", "8", "--expert-model-parallel-size", "2"], "stage of 2"),
        (["--train-backend", "fsdp", *experts], "need --train-backend megatron"),
        (["--train-backend", "megatron", "--load-in-4bit", "--lora-rank", "8"], "needs --train-backend fsdp"),
    ):
        assert main([*usual, *words]) == 2
        assert complaint in capsys.readouterr().err


def test_layers_missing_in_a_shorter_last_stage_are_in_the_others() -> None:
    even, shorter = Division(pp=4), Division(pp=4, last_layers=6)
    shape = read_shape("Qwen3-8B")
    shorter.check(shape, 4)
    assert [shorter.layers(shape, first) for first in (True, False)] == [10, 6]
    moved = [sum(shorter.numbers(shape, first)) - sum(even.numbers(shape, first)) for first in (True, False)]
    assert moved == pytest.approx([shape.block, -3 * shape.block], rel=1e-3)
    with pytest.raises(
        ConfigError, match="36 layers, which do not divide into 5 equal stages; --decoder-last"
    ):
        Division(pp=5).check(shape, 5)
    Division(pp=5, last_layers=4).check(shape, 5)


@pytest.fixture
def fitting() -> MemoryPlan:
    engine = EngineMemory(QWEN3_4B, gpus=2, fraction=0.8, context=32768)
    trainer = TrainerMemory(QWEN3_4B, 4, 32768, rows=1024, checkpointing=True)
    servers = (Server("policy", engine, 1), Server("judge", engine, 1))
    return MemoryPlan(GPUS["H100"], 8, trainer, servers, Batch(16, 8192))


def test_the_default_split_of_eight_gpus_fits(fitting: MemoryPlan) -> None:
    assert fitting.arithmetic() == "trainer 4 + policy 2 + judge 2 = 8 of 8 GPUs"
    assert problems(fitting) == []


def test_memory_shortages_are_reported_with_the_flag_to_change(fitting: MemoryPlan) -> None:
    assert "9 of 8 GPUs" in problems(replace(fitting, trainer=replace(fitting.trainer, gpus=5)))[0]
    kept = replace(fitting.trainer, checkpointing=False)
    assert "--gradient-checkpointing" in problems(replace(fitting, trainer=kept))[0]
    all_rows = replace(fitting.trainer, rows=0, entropy=True)
    assert "--log-probs-chunk-size" in problems(replace(fitting, trainer=all_rows))[0]
    divided = replace(all_rows, division=Division(tp=2))
    assert "--log-probs-chunk-size" in problems(replace(fitting, trainer=divided))[0]
    assert not problems(replace(fitting, trainer=replace(divided, rows=1024)))
    large = replace(fitting.trainer, shape=read_shape("Qwen3-32B"))
    assert "--fsdp-cpu-offload" in problems(replace(fitting, trainer=large))[0]
    small_card = replace(fitting, gpu=GPUS["RTX4090"], servers=fitting.servers[:1])
    policy = Server("policy", EngineMemory(read_shape("Qwen3-32B"), 1, 0.8, 32768), 1)
    assert "more GPUs per engine (TP)" in problems(replace(small_card, servers=(policy,)))[-1]
    short = Server("policy", EngineMemory(read_shape("Qwen3-8B"), 1, 0.8, 131072), 1)
    assert "CONTEXT_LENGTH" in problems(replace(small_card, servers=(short,)))[-1]


def test_gpus_of_an_engine_must_divide_the_heads(fitting: MemoryPlan) -> None:
    odd = Server("policy", replace(fitting.servers[0].engine, gpus=3), 1)
    [said] = problems(replace(fitting, servers=(odd,)))
    assert "3 GPUs do not divide the 32 attention heads" in said and "(TP)" in said


def test_an_engine_on_the_trainers_gpu_leaves_it_the_rest(fitting: MemoryPlan) -> None:
    alone = replace(fitting, gpus=1, servers=fitting.servers[:0], colocated=True)
    plan = replace(fitting.trainer, gpus=1, lora_rank=16, four_bit=True, tokens=8192)
    shares = [Server("policy", EngineMemory(QWEN3_4B, 1, share, 8192), 1) for share in (0.4, 0.9)]
    card = replace(alone, gpu=GPUS["RTX4090"], trainer=plan)
    fits, full = (problems(replace(card, servers=(one,))) for one in shares)
    assert fits == []
    assert "engines leave" in full[0]


def test_gpus_are_named_counted_or_described() -> None:
    assert parse_gpus("8xH100") == (8, GPUS["H100"])
    assert parse_gpus("h200") == (1, GPUS["H200"])
    assert parse_gpus("2x24GB")[1].memory == 24
    h100, card = _listed("NVIDIA H100 80GB HBM3, 81559"), _listed("NVIDIA GeForce RTX 4090, 24564")
    assert h100 is not None and h100.peak == GPUS["H100"].peak
    assert card is not None and card.memory == pytest.approx(23.99, abs=0.01)
    assert _listed("NVIDIA GB10, [N/A]") is None, "it shares the machine's memory"
    with pytest.raises(ConfigError, match="H100"):
        parse_gpus("8xVoodoo2")


def test_a_folder_is_planned_by_its_config(tmp_path: Path) -> None:
    vision = {
        "model_type": "qwen3_5",
        "text_config": KNOWN["Qwen3.5-4B"],
        "vision_config": {"hidden_size": 1},
    }
    (tmp_path / "config.json").write_text(json.dumps(vision))
    assert read_shape(str(tmp_path)).parameters == read_shape("Qwen/Qwen3.5-4B-Base").parameters
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ConfigError, match="mamba"):
        read_shape(str(tmp_path))
    with pytest.raises(ConfigError, match="Qwen3-4B"):
        read_shape("gpt-7")


def test_the_command_reports_whether_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    usual = [
        "--model",
        "Qwen3-4B",
        "--gpus",
        "8xH100",
        "--actor",
        "4",
        "--rollout",
        "2",
        "--prm",
        "2",
        "--tp",
        "2",
    ]
    assert main([*usual, "--price", "2.5", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parameters"] == 4_022_468_096
    assert data["step_dollars"] == pytest.approx(data["step_seconds"] / 3600 * 8 * 2.5)
    assert main([*usual, "--rollout", "4"]) == 1
    assert "problem" in capsys.readouterr().out
    assert main([*usual, "--tp", "3"]) == 2
    assert "--tp 3" in capsys.readouterr().err


def test_host_memory_and_disk_are_counted_and_shortages_reported() -> None:
    shape = read_shape("Qwen3-4B")
    trainer = TrainerMemory(shape, gpus=4, tokens=8192, rows=1024, checkpointing=True)
    engine = Server("policy", EngineMemory(shape, 1, 0.8, 32768), 4)
    gate = HostUse(gate=True, async_save=True, shared=True, weights=3, checkpoints=3)
    plan = MemoryPlan(named_gpu("H100"), 8, trainer, (engine,), Batch(16, 8192), host=gate)
    memory, disk = on_hosts(plan)
    numbers = shape.parameters
    assert memory["processes"] == 8 * PROCESS and memory["earlier trainer states"] == 24 * numbers
    assert memory["checkpoint being saved"] == 12 * numbers and memory["shared memory"] == 6 * numbers
    assert disk == {"checkpoints": 4 * 14 * numbers, "versions": 4 * 2 * numbers}
    assert host_problems(plan, sum(memory.values()), sum(disk.values())) == []
    lacks = host_problems(plan, 64 * GIB, 100 * GIB)
    assert (
        "GiB of host memory, but the machines have 64" in lacks[0]
        and "earlier trainer states; it needs less without --gate" in lacks[0]
    )
    assert "GiB of disk, but 100 are free" in lacks[1] and "--keep-checkpoints" in lacks[1]
    adapters = replace(plan, trainer=replace(trainer, lora_rank=16))
    assert sum(on_hosts(adapters)[0].values()) < sum(memory.values()) / 2
    assert "GiB of memory of the machines: processes 24" in as_text(plan)


def test_an_offloaded_trainer_includes_its_frozen_models() -> None:
    shape, small = read_shape("Qwen3-4B"), read_shape("Qwen3-0.6B")
    trainer = TrainerMemory(shape, gpus=4, tokens=8192, rows=1024, checkpointing=True)
    assert offloaded_bytes(trainer) == 12 * shape.parameters
    assert offloaded_bytes(replace(trainer, frozen=(small,))) == 12 * shape.parameters + 4 * small.parameters
    assert offloaded_bytes(replace(trainer, lora_rank=16)) > 4 * shape.parameters, "the base is there too"
    assert offloaded_bytes(replace(trainer, cpu_offload=True)) == 0
    plan = MemoryPlan(named_gpu("H100"), 8, trainer, (), Batch(16, 8192), host=HostUse(offload_train=True))
    assert on_hosts(plan)[0]["offloaded by the trainer"] == 12 * shape.parameters
