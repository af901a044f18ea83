"""What conversions need to know of a decoder: its kinds of layers, and how queries, keys and values become one matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DENSE = ("llama", "qwen2", "qwen3")
MIXTURES = ("qwen2_moe", "qwen3_moe")
HYBRIDS = ("qwen3_5_text",)
"""Decoders of which some layers have linear attention, whose queries have gates, and whose norms are zero-centred."""
WITH_VISION = ("qwen3_5",)
"""Models that hold such a decoder beside other parts."""
BODY, BESIDE_VISION = "model.", "model.language_model."
PARTS = ("gate", "up", "down")
EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


def head_dim(config: PretrainedConfig) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def language_part(config: PretrainedConfig) -> Any:
    """The configuration of the decoder in a model with vision; any other one as it is. `body` reads it."""
    if config.model_type not in WITH_VISION:
        return config
    text = config.get_text_config()
    text.tie_word_embeddings = config.tie_word_embeddings or text.tie_word_embeddings
    text.dtype = text.dtype or config.dtype
    text.body = BESIDE_VISION
    return text


def body(config: PretrainedConfig) -> str:
    """What the names of a decoder's weights begin with in its folder, but for the output head."""
    return str(getattr(config, "body", BODY))


def is_linear(config: PretrainedConfig, layer: int) -> bool:
    """Whether a layer, counted from 0, has linear attention."""
    return bool(config.model_type in HYBRIDS and config.layer_types[layer] == "linear_attention")


def has_experts(config: PretrainedConfig, layer: int) -> bool:
    """Whether a layer, counted from 0, is a mixture of experts."""
    if config.model_type not in MIXTURES or layer in config.mlp_only_layers:
        return False
    return bool(config.num_experts > 0 and (layer + 1) % config.decoder_sparse_step == 0)


def join_qkv(tensors: Sequence[Tensor], config: PretrainedConfig) -> Tensor:
    """Matrices or biases of queries, keys and values -> one, in which each head of keys follows its queries."""
    groups, size = config.num_key_value_heads, head_dim(config)
    parts = [x.reshape(groups, -1, size, *x.shape[1:]) for x in tensors]
    return torch.cat(parts, 1).flatten(0, 2)


def split_qkv(whole: Tensor, config: PretrainedConfig) -> list[Tensor]:
    """The way back from `join_qkv`."""
    groups, size = config.num_key_value_heads, head_dim(config)
    heads = whole.reshape(groups, -1, size, *whole.shape[1:])
    return [x.flatten(0, 2) for x in torch.split(heads, [heads.shape[1] - 2, 1, 1], dim=1)]


def in_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a Hugging Face folder by the names that transformers gives them in memory: a decoder has the same
    there whatever stands beside it, and all experts of a layer are one. Experts that lack a part stay as they are."""
    found = {name.replace(BESIDE_VISION, BODY, 1): tensor for name, tensor in tensors.items()}
    layers: dict[str, dict[tuple[int, str], str]] = {}
    for name in list(found):
        if match := EXPERT.fullmatch(name):
            layers.setdefault(match[1], {})[int(match[2]), match[3]] = name
    for layer, names in layers.items():
        count = max(number for number, _ in names) + 1
        if len(names) == 3 * count:
            parts = {part: [found.pop(names[i, part]) for i in range(count)] for part in PARTS}
            both = zip(parts["gate"], parts["up"], strict=True)
            found[f"{layer}.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in both])
            found[f"{layer}.down_proj"] = torch.stack(parts["down"])
    return found
