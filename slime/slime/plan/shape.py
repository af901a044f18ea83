"""The shape of a language model: how many numbers each of its parts has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.errors import ConfigError
from slime.plan.known import KNOWN, known_name

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen3_5", "qwen3_5_text")


@dataclass(frozen=True)
class LinearAttention:
    """A gated delta net (Qwen3.5): its heads, their widths, and the kernel of its convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    def linear(self, hidden: int) -> int:
        """Numbers in its linear modules."""
        return hidden * (2 * self.keys + 3 * self.values + 2 * self.value_heads)

    def other(self) -> int:
        """Numbers in its convolution, its two vectors a head, and its norm."""
        return (2 * self.keys + self.values) * self.kernel + 2 * self.value_heads + self.value_dim


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. `mlp`: width of the feed-forward; `expert_mlp`: of one expert, in `mixed_layers` of them;
    `shared_mlp`: of the expert that every token goes to."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool
    context: int
    qkv_bias: bool = False
    qk_norm: bool = False
    gated: bool = False
    experts: int = 0
    used_experts: int = 0
    expert_mlp: int = 0
    mixed_layers: int = 0
    shared_mlp: int = 0
    full_layers: int = 0
    linear_attention: LinearAttention | None = None

    @property
    def all_heads(self) -> tuple[int, ...]:
        """How many heads there are of each kind: what ranks that cut attention must divide."""
        linear = self.linear_attention
        return self.heads, self.kv_heads, *((linear.key_heads, linear.value_heads) if linear else ())

    @property
    def queries(self) -> int:
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def attention_linear(self) -> int:
        """Numbers in the linear modules of one full attention; a gate doubles the queries."""
        return self.hidden * (self.queries * (3 if self.gated else 2) + 2 * self.keys)

    @property
    def experts_linear(self) -> int:
        """Numbers in all experts."""
        return self.mixed_layers * self.experts * 3 * self.hidden * self.expert_mlp

    @property
    def linear_parameters(self) -> int:
        """Numbers in all linear modules of the layers: what adapters go to and what 4 bits shrink."""
        mixing = self.full_layers * self.attention_linear
        if self.linear_attention is not None:
            mixing += (self.layers - self.full_layers) * self.linear_attention.linear(self.hidden)
        beside = self.experts + (
            3 * self.shared_mlp + 1 if self.shared_mlp else 0
        )  # routers; shared experts, gates
        dense = (self.layers - self.mixed_layers) * 3 * self.hidden * self.mlp
        return mixing + dense + self.mixed_layers * self.hidden * beside + self.experts_linear

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def ends(self) -> int:
        """Numbers outside of the layers: embedding, output head (unless tied), last norm."""
        return self.embedding * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        """All numbers; a tied output head counts once."""
        small = self.layers * 2 * self.hidden
        if self.qk_norm:
            small += self.full_layers * 2 * self.head_dim
        if self.qkv_bias:
            small += self.full_layers * (self.queries + 2 * self.keys)
        if self.linear_attention is not None:
            small += (self.layers - self.full_layers) * self.linear_attention.other()
        return self.linear_parameters + small + self.ends

    @property
    def block(self) -> int:
        """Numbers in one layer, on average."""
        return (self.parameters - self.ends) // self.layers

    @property
    def computed(self) -> int:
        """Numbers that every token is multiplied with: no embedding, only the experts that are used."""
        return self.linear_parameters - self.idle + self.embedding

    @property
    def idle(self) -> int:
        """Numbers in the experts that one token does not use."""
        return self.experts_linear // max(self.experts, 1) * (self.experts - self.used_experts)

    @property
    def active(self) -> int:
        """Numbers that take part in one token: what the A of a name such as 30B-A3B counts."""
        return self.parameters - self.idle

    @property
    def kv_bytes(self) -> int:
        """Bytes of bf16 keys and values that one token keeps in all layers with full attention."""
        return 2 * 2 * self.full_layers * self.keys

    def adapters(self, rank: int) -> int:
        """Numbers in LoRA adapters on every linear module of the layers: rank x (in + out) each.

        Raises:
            ConfigError: adapters of experts, whose number depends on how the model holds them.
        """
        if self.experts:
            raise ConfigError(f"{self.name}: adapters of a mixture of experts are not planned")
        h, q, k = self.hidden, self.queries * (2 if self.gated else 1), self.keys
        full = (h + q) + 2 * (h + k) + (self.queries + h)
        ends = 3 * (h + self.mlp)
        mixing = self.full_layers * full
        if (linear := self.linear_attention) is not None:
            each = (
                (h + 2 * linear.keys + linear.values) + 2 * (h + linear.values) + 2 * (h + linear.value_heads)
            )
            mixing += (self.layers - self.full_layers) * each
        return rank * (mixing + self.layers * ends)


def read_shape(model: str) -> Shape:
    """The shape of a folder's config.json, or of a well-known model by name.

    Raises:
        ConfigError: neither, or an architecture that is not planned.
    """
    return shape_of(*read_config(model))


def read_config(model: str) -> tuple[dict[str, Any], str]:
    """The config.json of a folder, or of a well-known model, and the model's name. Raises ConfigError for neither."""
    file = Path(model).expanduser() / "config.json"
    if file.is_file():
        try:
            config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{file} is no JSON: {error}") from error
        return config, str(model)
    name = known_name(model)
    if name is None:
        raise ConfigError(f"{model} is neither a folder with a config.json nor one of {', '.join(KNOWN)}")
    return KNOWN[name], name


def shape_of(config: dict[str, Any], name: str) -> Shape:
    """The shape that a config.json describes; of a model with vision, its language part."""
    text: dict[str, Any] = {**config, **(config.get("text_config") or {})}
    text["tie_word_embeddings"] = any(part.get("tie_word_embeddings") for part in (config, text))
    family = str(text.get("model_type"))
    if family not in FAMILIES:
        raise ConfigError(f"{name} is of type {family}; planned are {', '.join(FAMILIES)}")
    try:
        return _shape(text, family, name)
    except KeyError as error:
        raise ConfigError(f"the config.json of {name} has no {error.args[0]}") from error


def _shape(text: dict[str, Any], family: str, name: str) -> Shape:
    layers, heads = int(text["num_hidden_layers"]), int(text["num_attention_heads"])
    hybrid = family.startswith("qwen3_5")
    moe = family.endswith("_moe")
    return Shape(
        name=name,
        hidden=text["hidden_size"],
        layers=layers,
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or text["hidden_size"] // heads,
        mlp=text["intermediate_size"],
        vocabulary=text["vocab_size"],
        tied=bool(text.get("tie_word_embeddings", False)),
        context=most_tokens(text),
        qkv_bias=family.startswith("qwen2"),
        qk_norm=family.startswith("qwen3"),
        gated=hybrid,
        experts=text.get("num_local_experts") or text["num_experts"] if moe else 0,
        used_experts=text["num_experts_per_tok"] if moe else 0,
        expert_mlp=text["moe_intermediate_size"] if moe else 0,
        shared_mlp=text["shared_expert_intermediate_size"] if family == "qwen2_moe" else 0,
        mixed_layers=_mixed_layers(text, layers) if moe else 0,
        full_layers=_full_layers(text, layers) if hybrid else layers,
        linear_attention=_linear_attention(text) if hybrid else None,
    )


def most_tokens(config: dict[str, Any]) -> int:
    """Positions of a config.json as SGLang and vLLM count them: a stretched rotation whose config does not tell the
    original length makes them more. 0: it does not say."""
    text = {**config, **(config.get("text_config") or {})}
    rope = text.get("rope_scaling") or {}
    factor = 1.0
    if "original_max_position_embeddings" not in rope and rope.get("rope_type", rope.get("type")) != "llama3":
        factor = float(rope.get("factor") or 1.0)
    return int(factor * (text.get("max_position_embeddings") or 0))


def _full_layers(text: dict[str, Any], layers: int) -> int:
    if kinds := text.get("layer_types"):
        return sum(kind == "full_attention" for kind in kinds)
    return layers // int(text["full_attention_interval"])


def _mixed_layers(text: dict[str, Any], layers: int) -> int:
    """How many layers are mixtures of experts, by the rule of Hugging Face's configuration."""
    step, dense = text.get("decoder_sparse_step") or 1, text.get("mlp_only_layers") or ()
    return sum((layer + 1) % step == 0 and layer not in dense for layer in range(layers))


def _linear_attention(text: dict[str, Any]) -> LinearAttention:
    return LinearAttention(
        key_heads=text["linear_num_key_heads"],
        value_heads=text["linear_num_value_heads"],
        key_dim=text["linear_key_head_dim"],
        value_dim=text["linear_value_head_dim"],
        kernel=text["linear_conv_kernel_dim"],
    )
