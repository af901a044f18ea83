"""Writes the weights of a Hugging Face folder as a checkpoint that Megatron-LM can load."""

from __future__ import annotations

import json
import warnings
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from slime.torch_dist.layout import ALIASES, LAYERS, ends_of, join, rules_of, sources_of
from slime.utils.decoders import MIXTURES, has_experts, head_dim
from slime.weights.checkpoints import MEGATRON_INDEX
from slime.weights.files import WeightFiles

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def write(source: Path, config: PretrainedConfig, target: Path, dtype: torch.dtype | None = None) -> None:
    """Writes the weights of a Hugging Face folder as a checkpoint to `target`, cast to `dtype` (None: unchanged).

    All weights are in memory at the same time. As Megatron-LM expects, dense models have one tensor for all layers,
    and mixtures of experts one per layer.
    """
    state: dict[str, Tensor] = {}
    with WeightFiles(source) as files:
        for key, name in ends_of(config).items():
            state[key] = files.read(name)
        layers: dict[str, list[Tensor]] = {}
        for layer in range(config.num_hidden_layers):
            for rule in rules_of(config, layer):
                names = sources_of(rule, config, layer)
                whole = join(rule, [files.read(name) for name in names], config)
                if config.model_type in MIXTURES:
                    for key in (rule.key, *ALIASES.get(rule.key, ())):
                        state[f"{LAYERS}{layer}.{key}"] = whole
                else:
                    layers.setdefault(LAYERS + rule.key, []).append(whole)
        while layers:
            key = next(iter(layers))
            state[key] = torch.stack(layers.pop(key))
    target.mkdir(parents=True, exist_ok=True)
    cast = {key: tensor.to(dtype or tensor.dtype) for key, tensor in state.items()}
    with warnings.catch_warnings():  # torch warns that only one process writes
        warnings.simplefilter("ignore", UserWarning)
        save(cast | extra_states(config), storage_writer=FileSystemWriter(target), no_dist=True)
    common = {"args": megatron_arguments(config), "checkpoint_version": 3.0, "iteration": 0}
    torch.save(common, target / "common.pt")
    backend = {"sharded_backend": "torch_dist", "common_backend": "torch"}
    versions = {f"{name}_version": 1 for name in backend}
    (target / MEGATRON_INDEX).write_text(json.dumps(backend | versions))


def extra_states(config: PretrainedConfig) -> dict[str, Any]:
    """Returns the extra states that megatron-core expects for each module: empty, or Transformer Engine's fp8
    scales."""
    states: dict[str, Any] = {}
    mixture, count = config.model_type in MIXTURES, config.num_hidden_layers
    for layer in range(count):
        modules = {rule.key.removesuffix(".weight"): rule.kind for rule in rules_of(config, layer)}
        modules["self_attention.core_attention"] = "plain"
        for module, kind in modules.items():
            if not module.rpartition(".")[2].startswith(("linear_", "core_")):
                continue
            prefix, shards = f"{LAYERS}{layer}.", [(0, 1)]
            if not mixture:
                prefix, shards = LAYERS, [(layer, count)]
            elif kind == "experts":
                shards = [(expert, config.num_experts) for expert in range(config.num_experts)]
            states |= {f"{prefix}{module}._extra_state/shard_{one}_{all_}": [None] for one, all_ in shards}
    return states


def megatron_arguments(config: PretrainedConfig) -> Namespace:
    """Returns the model's shape under the argument names of Megatron-LM's checkpoints."""
    shape = {
        "num_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "ffn_hidden_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "group_query_attention": True,
        "num_query_groups": config.num_key_value_heads,
        "kv_channels": head_dim(config),
        "max_position_embeddings": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "norm_epsilon": config.rms_norm_eps,
        "normalization": "RMSNorm",
        "swiglu": True,
        "add_bias_linear": False,
        "add_qkv_bias": config.model_type.startswith("qwen2"),
        "qk_layernorm": config.model_type.startswith("qwen3"),
        "position_embedding_type": "rope",
        "rotary_base": (config.rope_parameters or {}).get("rope_theta"),
        "untie_embeddings_and_output_weights": not config.tie_word_embeddings,
        "iteration": 0,
    }
    if config.model_type in MIXTURES:
        mixed = [int(has_experts(config, layer)) for layer in range(config.num_hidden_layers)]
        shape |= {
            "num_experts": config.num_experts,
            "moe_router_topk": config.num_experts_per_tok,
            "moe_ffn_hidden_size": config.moe_intermediate_size,
            "moe_router_pre_softmax": not config.norm_topk_prob,
            "moe_layer_freq": mixed,
            "moe_shared_expert_intermediate_size": getattr(config, "shared_expert_intermediate_size", None),
        }
    return Namespace(**shape)
