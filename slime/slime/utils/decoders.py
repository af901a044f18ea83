"""Properties of decoders that conversions need: kinds of layers, and the joined matrix of queries, keys and
values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DENSE = ("llama", "qwen2", "qwen3")
MIXTURES = ("qwen2_moe", "qwen3_moe")
HYBRIDS = ("qwen3_5_text",)
"""Decoders in which some layers have linear attention, queries have gates, and norms are zero-centred."""
WITH_VISION = ("qwen3_5",)
"""Models that contain such a decoder and other parts."""
BODY, BESIDE_VISION = "model.", "model.language_model."
PARTS = ("gate", "up", "down")
EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


def head_dim(config: PretrainedConfig) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def language_part(config: PretrainedConfig) -> Any:
    """Returns the decoder's configuration of a model with vision; other configurations are returned unchanged. `body`
    uses it."""
    if config.model_type not in WITH_VISION:
        return config
    text = config.get_text_config()
    text.tie_word_embeddings = config.tie_word_embeddings or text.tie_word_embeddings
    text.dtype = text.dtype or config.dtype
    text.body = BESIDE_VISION
    return text


def body(config: PretrainedConfig) -> str:
    """Returns the name prefix of a decoder's weights in its folder; the output head has none."""
    return str(getattr(config, "body", BODY))


def is_linear(config: PretrainedConfig, layer: int) -> bool:
    """Returns whether a layer, counted from 0, has linear attention."""
    return bool(config.model_type in HYBRIDS and config.layer_types[layer] == "linear_attention")


def has_experts(config: PretrainedConfig, layer: int) -> bool:
    """Returns whether a layer, counted from 0, is a mixture of experts."""
    if config.model_type not in MIXTURES or layer in config.mlp_only_layers:
        return False
    return bool(config.num_experts > 0 and (layer + 1) % config.decoder_sparse_step == 0)


def join_qkv(tensors: Sequence[Tensor], config: PretrainedConfig, ranks: int = 1) -> Tensor:
    """Joins matrices or biases of queries, keys and values into one, in which each key head follows its queries.

    Args:
        ranks: number of ranks that share the heads; the tensors are one rank's parts.
    """
    groups, size = config.num_key_value_heads // ranks, head_dim(config)
    parts = [x.reshape(groups, -1, size, *x.shape[1:]) for x in tensors]
    return torch.cat(parts, 1).flatten(0, 2)


def split_qkv(whole: Tensor, config: PretrainedConfig) -> list[Tensor]:
    """The inverse of `join_qkv`."""
    groups, size = config.num_key_value_heads, head_dim(config)
    heads = whole.reshape(groups, -1, size, *whole.shape[1:])
    return [x.flatten(0, 2) for x in torch.split(heads, [heads.shape[1] - 2, 1, 1], dim=1)]


Source = str | tuple[tuple[str, ...], ...]
"""The source of a tensor in memory: one tensor of the folder or, for each expert, the tensors that are stacked."""


def sources_in_memory(names: Iterable[str], with_vision: bool = False) -> dict[str, Source]:
    """Returns the sources in a Hugging Face folder by transformers' name in memory. There, decoder names do not
    depend on the model's other parts, and all experts of a layer are one tensor. Experts with a missing part stay
    separate.

    Args:
        with_vision: the model includes the parts other than its decoder, and uses the folder's names.
    """
    sources: dict[str, str] = {
        name if with_vision else name.replace(BESIDE_VISION, BODY, 1): name for name in names
    }
    layers: dict[str, dict[tuple[int, str], str]] = {}
    for name in sources:
        if match := EXPERT.fullmatch(name):
            layers.setdefault(match[1], {})[int(match[2]), match[3]] = name
    joined: dict[str, Source] = {}
    for layer, members in layers.items():
        count = max(number for number, _ in members) + 1
        if len(members) == 3 * count:
            parts = {part: [sources.pop(members[i, part]) for i in range(count)] for part in PARTS}
            joined[f"{layer}.gate_up_proj"] = tuple(zip(parts["gate"], parts["up"], strict=True))
            joined[f"{layer}.down_proj"] = tuple((name,) for name in parts["down"])
    return {**sources, **joined}


def in_memory(tensors: Mapping[str, Tensor], with_vision: bool = False) -> dict[str, Tensor]:
    """Converts the tensors of a Hugging Face folder to the names and shapes of `sources_in_memory`."""
    sources = sources_in_memory(tensors, with_vision)
    return {name: join(source, tensors.__getitem__) for name, source in sources.items()}


def join(source: Source, read: Callable[[str], Tensor]) -> Tensor:
    """Returns the tensor that a source describes. `read`: returns a tensor of the folder by name."""
    if isinstance(source, str):
        return read(source)
    return torch.stack([torch.cat([read(name) for name in expert]) for expert in source])
