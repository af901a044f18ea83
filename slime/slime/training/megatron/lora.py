"""LoRA on a sharded model: adds adapters, disables them, merges them into copies, and stores them in PEFT's format.

The base never changes. Engines get base + scale * B A, which each rank computes for its own shard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import LoraConfig
from torch import Tensor, nn

from slime.errors import ConfigError
from slime.training.megatron.adapters import Adapter, Adapters, Output, adapters_of
from slime.training.megatron.delta_net import projected
from slime.training.megatron.fused_rows import Sections, cut
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Parallel
from slime.training.megatron.weight_map import Entry
from slime.training.megatron.weights import WeightMap, to_first_stage
from slime.utils.decoders import HYBRIDS, has_experts, head_dim, is_linear
from slime.weights.folders import PEFT_PREFIX, write_adapter_folder

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from slime.flags.lora import LoraArguments
    from slime.flags.sides import TrainingSide

JOINED = {
    "self_attention.linear_qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.linear_proj": ("self_attn.o_proj",),
    "self_attention.in_proj": tuple(f"linear_attn.in_proj_{name}" for name in ("qkv", "z", "b", "a")),
    "self_attention.out_proj": ("linear_attn.out_proj",),
    "mlp.linear_fc1": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.linear_fc2": ("mlp.down_proj",),
}
"""Linear modules of a megatron-core layer, with the joined Hugging Face modules in their order."""
BY_INPUTS = ("self_attention.linear_proj", "self_attention.out_proj", "mlp.linear_fc2")
Factors = tuple[Tensor, Tensor]


def add_adapters(core: PackedGPT, weights: WeightMap, args: TrainingSide) -> None:
    """Freezes the model and adds adapters with an initial effect of zero, equal to PEFT's for the whole
    model.

    Raises:
        ConfigError: --lora-target-modules names a module that does not exist or cannot have adapters, or no
            module of this pipeline stage.
    """
    core.requires_grad_(False)
    like = next(core.parameters())
    drawn = _draw(weights.hf, args)
    for number, layer in enumerate(core.decoder.layers):
        for path, modules in JOINED.items():
            own = {
                name: drawn[key] for name in modules if (key := _key(number + weights.offset, name)) in drawn
            }
            if own:
                adapters = _build(path, own, weights.hf, core, args, number + weights.offset)
                linear = layer.get_submodule(path)
                linear.adapters = adapters.to(like.device, like.dtype)
                linear.register_forward_hook(adapters.add)
                _enter(weights, f"decoder.layers.{number}.{path}", number + weights.offset, own, adapters)
    if not adapters_of(core):
        raise ConfigError(
            f"--lora-target-modules {args.lora_target_modules} selects no module of pipeline "
            f"stage {core.parallel.pp.rank}; select modules of every stage, or use fewer stages"
        )


def _draw(hf: PretrainedConfig, args: TrainingSide) -> dict[str, Factors]:
    """Returns the whole factors of all selected modules, by name. Every rank draws the same values."""
    every = [
        (_key(layer, name), size)
        for layer in range(hf.num_hidden_layers)
        for name, size in _sizes(hf, layer).items()
        if not (name.startswith("mlp.") and has_experts(hf, layer))  # experts are not linear modules
    ]
    names = [name.strip() for name in (args.lora_target_modules or "").split(",") if name.strip()]
    known = ", ".join(
        {_last(name): None for layer in range(hf.num_hidden_layers) for name in _sizes(hf, layer)}
    )
    if not names and any(has_experts(hf, layer) for layer in range(hf.num_hidden_layers)):
        raise ConfigError(f"--lora-target-modules: experts cannot have adapters; select from {known}")
    for name in names:
        if not any(_matches(key, name) for key, _ in every):
            raise ConfigError(
                f"--lora-target-modules: {name} cannot have adapters with --train-backend "
                f"megatron; select from {known}"
            )
    assert args.lora_rank is not None
    chosen = [(key, size) for key, size in every if not names or any(_matches(key, name) for name in names)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(args.seed)
        return {key: _factors(*size, args.lora_rank) for key, size in chosen}


def _factors(inputs: int, outputs: int, rank: int) -> Factors:
    """Draws initial factors twice, as PEFT does, to get the same values."""
    down, up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
    nn.init.kaiming_uniform_(down.weight, a=math.sqrt(5))
    return down.weight.detach(), torch.zeros_like(up.weight)


def _key(layer: int, name: str) -> str:
    return f"model.layers.{layer}.{name}"


def _matches(key: str, name: str) -> bool:
    return key == name or key.endswith(f".{name}")


def _sizes(hf: PretrainedConfig, layer: int) -> dict[str, tuple[int, int]]:
    """Returns input and output sizes of a layer's linear modules, in transformers' order."""
    hidden, inner = hf.hidden_size, hf.intermediate_size
    attention = _linear_attention(hf) if is_linear(hf, layer) else _full_attention(hf)
    return attention | {
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }


def _full_attention(hf: PretrainedConfig) -> dict[str, tuple[int, int]]:
    hidden, size = hf.hidden_size, head_dim(hf)
    queries, keys = hf.num_attention_heads * size, hf.num_key_value_heads * size
    return {
        "self_attn.q_proj": (
            hidden,
            queries * (2 if hf.model_type in HYBRIDS else 1),
        ),  # including their gates
        "self_attn.k_proj": (hidden, keys),
        "self_attn.v_proj": (hidden, keys),
        "self_attn.o_proj": (queries, hidden),
    }


def _linear_attention(hf: PretrainedConfig) -> dict[str, tuple[int, int]]:
    inner = JOINED["self_attention.in_proj"]
    sizes = [sum(group) for group in projected(hf)]
    into = {name: (hf.hidden_size, size) for name, size in zip(inner, sizes, strict=True)}
    return {"linear_attn.out_proj": (sizes[1], hf.hidden_size)} | into


def _sections(hf: PretrainedConfig, name: str) -> Sections:
    """Returns the row sections of the second factor, if each rank has a part of every section."""
    return projected(hf)[:1] if name == "linear_attn.in_proj_qkv" else ()


def _build(
    path: str, own: dict[str, Factors], hf: PretrainedConfig, core: PackedGPT, args: LoraArguments, layer: int
) -> Adapters:
    """Returns this rank's shard of one module's adapters."""
    tp, by_inputs = core.parallel.tp, path in BY_INPUTS
    parts: dict[str, Adapter] = {}
    for name, (down, up) in own.items():
        if by_inputs:
            down = down.chunk(tp.size, 1)[tp.rank]
        else:
            rows = [size for group in _sections(hf, name) for size in group] or [len(up)]
            up = cut(up, rows, tp.size, tp.rank)
        parts[_last(name)] = Adapter(down.clone(), up.clone())
    shared = 1 if by_inputs else tp.size
    assert args.lora_alpha is not None and args.lora_rank is not None and args.lora_dropout is not None
    sizes = {_last(name): _sizes(hf, layer)[name][1] // shared for name in JOINED[path]}
    groups = hf.num_key_value_heads // tp.size if len(sizes) == 3 else 1
    return Adapters(
        parts,
        Output(sizes, groups),
        by_inputs,
        core.config.sequence_parallel,
        args.lora_alpha / args.lora_rank,
        args.lora_dropout,
    )


def _enter(weights: WeightMap, linear: str, layer: int, own: dict[str, Factors], adapters: Adapters) -> None:
    """Adds the stored adapters to the weight map, with their effect on the module's weight."""
    weights.changed[f"{linear}.weight"] = adapters.merged
    for name in own:
        for factor, letter, dim in (
            ("down", "A", 1 if adapters.by_inputs else None),
            ("up", "B", None if adapters.by_inputs else 0),
        ):
            stored = f"{PEFT_PREFIX}{_key(layer, name)}.lora_{letter}.weight"
            sections = _sections(weights.hf, name) if factor == "up" else ()
            entry = Entry((stored,), "adapter", dim, sections=sections)
            weights.entries[f"{linear}.adapters.parts.{_last(name)}.{factor}"] = entry


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def adapter_writer(
    weights: WeightMap, parallel: Parallel, args: LoraArguments, base: str
) -> Callable[[Path], dict[str, Tensor]]:
    """Returns a function that writes the adapter in PEFT's format and returns its tensors. Every rank must
    call this.

    Only rank 0 writes.

    Args:
        base: folder of the adapter's base model.
    """
    whole = dict(to_first_stage(weights.whole_adapters(), parallel, torch.float32))

    def write(folder: Path) -> dict[str, Tensor]:
        names = sorted({name.rsplit(".", 3)[1] for name in whole})
        config = LoraConfig(
            task_type="CAUSAL_LM",
            r=args.lora_rank,
            lora_alpha=args.lora_alpha,
            lora_dropout=args.lora_dropout,
            target_modules=[
                name.strip() for name in (args.lora_target_modules or ",".join(names)).split(",")
            ],
            base_model_name_or_path=base,
            inference_mode=True,
        )
        write_adapter_folder(folder, whole, config)
        return whole

    return write
