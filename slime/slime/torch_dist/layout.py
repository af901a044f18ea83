"""Names in a Megatron-LM checkpoint, and the joining of Hugging Face's tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from slime.utils.decoders import has_experts, join_qkv, split_qkv
from slime.weights.checksum import LM_HEAD

if TYPE_CHECKING:
    from transformers import PretrainedConfig

LAYERS = "decoder.layers."
Kind = Literal["plain", "qkv", "halves", "experts"]


@dataclass(frozen=True)
class Rule:
    """The sources of one tensor of a layer. `key`: megatron-core's name; `sources`: Hugging Face's names, in which {}
    stands for the number of each expert."""

    key: str
    sources: tuple[str, ...]
    kind: Kind = "plain"


ATTENTION = (
    Rule("self_attention.linear_qkv.layer_norm_weight", ("input_layernorm.weight",)),
    Rule("self_attention.linear_qkv.weight", tuple(f"self_attn.{x}_proj.weight" for x in "qkv"), "qkv"),
    Rule("self_attention.linear_proj.weight", ("self_attn.o_proj.weight",)),
)
QKV_BIAS = (Rule("self_attention.linear_qkv.bias", tuple(f"self_attn.{x}_proj.bias" for x in "qkv"), "qkv"),)
QK_NORM = (
    Rule("self_attention.q_layernorm.weight", ("self_attn.q_norm.weight",)),
    Rule("self_attention.k_layernorm.weight", ("self_attn.k_norm.weight",)),
)
DENSE_MLP = (
    Rule("mlp.linear_fc1.layer_norm_weight", ("post_attention_layernorm.weight",)),
    Rule("mlp.linear_fc1.weight", ("mlp.gate_proj.weight", "mlp.up_proj.weight"), "halves"),
    Rule("mlp.linear_fc2.weight", ("mlp.down_proj.weight",)),
)
EXPERTS = (
    Rule("pre_mlp_layernorm.weight", ("post_attention_layernorm.weight",)),
    Rule("mlp.router.weight", ("mlp.gate.weight",)),
    Rule(
        "mlp.experts.experts.linear_fc1.weight",
        ("mlp.experts.{}.gate_proj.weight", "mlp.experts.{}.up_proj.weight"),
        "experts",
    ),
    Rule("mlp.experts.experts.linear_fc2.weight", ("mlp.experts.{}.down_proj.weight",), "experts"),
)
SHARED_EXPERT = (
    Rule(
        "mlp.shared_experts.linear_fc1.weight",
        ("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"),
        "halves",
    ),
    Rule("mlp.shared_experts.linear_fc2.weight", ("mlp.shared_expert.down_proj.weight",)),
    Rule("mlp.shared_experts.gate_weight", ("mlp.shared_expert_gate.weight",)),
)
ALIASES = {"pre_mlp_layernorm.weight": ("mlp.linear_fc1.layer_norm_weight",)}
"""Alternative names of the same tensor, in checkpoints of megatron-core without Transformer Engine."""
ENDS = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": LM_HEAD,
}


def rules_of(config: PretrainedConfig, layer: int) -> tuple[Rule, ...]:
    """Returns the rules for the tensors of one layer."""
    attention: tuple[Rule, ...] = ATTENTION
    if config.model_type.startswith("qwen2"):
        attention += QKV_BIAS
    if config.model_type.startswith("qwen3"):
        attention += QK_NORM
    if not has_experts(config, layer):
        return attention + DENSE_MLP
    return attention + EXPERTS + (SHARED_EXPERT if config.model_type == "qwen2_moe" else ())


def sources_of(rule: Rule, config: PretrainedConfig, layer: int) -> list[str]:
    """Returns Hugging Face's names of one tensor of a layer."""
    names = rule.sources
    if rule.kind == "experts":
        names = tuple(name.format(i) for i in range(config.num_experts) for name in rule.sources)
    return [f"model.layers.{layer}.{name}" for name in names]


def ends_of(config: PretrainedConfig) -> dict[str, str]:
    """Returns Hugging Face's names of the weights outside the layers, by megatron-core's name; a tied output head is
    omitted."""
    return {key: name for key, name in ENDS.items() if name != LM_HEAD or not config.tie_word_embeddings}


def join(rule: Rule, tensors: list[Tensor], config: PretrainedConfig) -> Tensor:
    """Joins the Hugging Face tensors of a rule into one."""
    if rule.kind == "qkv":
        return join_qkv(tensors, config)
    if rule.kind == "experts":
        return torch.stack(tensors).view(config.num_experts, -1, tensors[0].shape[-1])
    return torch.cat(tensors)


def separate(rule: Rule, whole: Tensor, config: PretrainedConfig) -> list[Tensor]:
    """The inverse of `join`."""
    if rule.kind == "qkv":
        return split_qkv(whole, config)
    if rule.kind == "experts":
        return [part for expert in whole for part in expert.chunk(len(rule.sources))]
    return list(whole.chunk(len(rule.sources)))
