"""The shape of a language model: the number of parameters of each part. Well-known models need no download.

`python -m slime.plan.shape MODEL` prints the context length of a model, before any package is installed; 0 if its
config.json does not have it, or is missing.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.errors import ConfigError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen3_5", "qwen3_5_text")


@dataclass(frozen=True)
class LinearAttention:
    """A gated delta net (Qwen3.5): its heads, their sizes, and the kernel size of its convolution."""

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
        """Returns the parameters of its linear modules."""
        return hidden * (2 * self.keys + 3 * self.values + 2 * self.value_heads)

    def other(self) -> int:
        """Returns the parameters of its convolution, its two vectors a head, and its norm."""
        return (2 * self.keys + self.values) * self.kernel + 2 * self.value_heads + self.value_dim


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. `mlp`: width of the feed-forward; `expert_mlp`: of one expert, in `mixed_layers` layers;
    `shared_mlp`: of the shared expert."""

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
        """Returns the numbers of heads of each kind; tensor-parallel sizes must divide them."""
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
        """Returns the parameters of the linear modules of one full attention; a gate doubles the queries."""
        return self.hidden * (self.queries * (3 if self.gated else 2) + 2 * self.keys)

    @property
    def experts_linear(self) -> int:
        """Returns the parameters of all experts."""
        return self.mixed_layers * self.experts * 3 * self.hidden * self.expert_mlp

    @property
    def linear_parameters(self) -> int:
        """Returns the parameters of all linear modules of the layers, which adapters and 4-bit quantisation apply
        to."""
        mixing = self.full_layers * self.attention_linear
        if self.linear_attention is not None:
            mixing += (self.layers - self.full_layers) * self.linear_attention.linear(self.hidden)
        # routers; shared experts, gates
        unrouted = self.experts + (3 * self.shared_mlp + 1 if self.shared_mlp else 0)
        dense = (self.layers - self.mixed_layers) * 3 * self.hidden * self.mlp
        return mixing + dense + self.mixed_layers * self.hidden * unrouted + self.experts_linear

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def ends(self) -> int:
        """Returns the parameters outside the layers: embedding, output head (unless tied), last norm."""
        return self.embedding * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        """Returns the number of parameters; a tied output head counts once."""
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
        """Returns the average parameters of a layer."""
        return (self.parameters - self.ends) // self.layers

    @property
    def computed(self) -> int:
        """Returns the parameters multiplied with every token: without embedding and unused experts."""
        return self.linear_parameters - self.idle + self.embedding

    @property
    def idle(self) -> int:
        """Returns the parameters of the experts that a token does not use."""
        return self.experts_linear // max(self.experts, 1) * (self.experts - self.used_experts)

    @property
    def active(self) -> int:
        """Returns the active parameters of a token, as in a name such as 30B-A3B."""
        return self.parameters - self.idle

    @property
    def kv_bytes(self) -> int:
        """Returns the bytes of one token's keys and values in bf16 over all layers with full attention."""
        return 2 * 2 * self.full_layers * self.keys

    def adapters(self, rank: int) -> int:
        """Returns the parameters of LoRA adapters on every linear module of the layers: rank x (in + out) each.

        Raises:
            ConfigError: adapters of experts, whose number depends on how the model holds them.
        """
        if self.experts:
            raise ConfigError(
                f"{self.name}: the memory plan does not support adapters of a mixture of experts"
            )
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
    """Returns the shape of a folder's config.json, or of a well-known model by name.

    Raises:
        ConfigError: neither, or an architecture that is not planned.
    """
    return shape_of(*read_config(model))


def read_config(model: str) -> tuple[dict[str, Any], str]:
    """Returns the config.json of a folder, or of a well-known model, and the model's name. Raises ConfigError for
    neither."""
    file = Path(model).expanduser() / "config.json"
    if file.is_file():
        try:
            config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{file} is not JSON: {error}") from error
        return config, str(model)
    name = known_name(model)
    if name is None:
        raise ConfigError(f"{model} is neither a folder with a config.json nor one of {', '.join(KNOWN)}")
    return KNOWN[name], name


def heads_problem(role: str, gpus: int, heads: int, model: str) -> str | None:
    """Returns why a model cannot be divided over so many GPUs; None if it can."""
    if heads % gpus == 0:
        return None
    return (
        f"the {role} engine's {gpus} GPUs do not divide the {heads} attention heads of {model}: use another "
        "number of GPUs per engine (TP)"
    )


def shape_of(config: dict[str, Any], name: str) -> Shape:
    """Returns the shape from a config.json; of a model with vision, its language part."""
    text: dict[str, Any] = {**config, **(config.get("text_config") or {})}
    text["tie_word_embeddings"] = any(part.get("tie_word_embeddings") for part in (config, text))
    family = str(text.get("model_type"))
    if family not in FAMILIES:
        raise ConfigError(
            f"{name} has the model_type {family}; the memory plan supports {', '.join(FAMILIES)}"
        )
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
    """Returns the context length in a config.json as counted by SGLang and vLLM: RoPE scaling increases it if the
    config lacks the original length. 0: it has none."""
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
    """Returns the number of mixture-of-experts layers, by the rule of Hugging Face's configuration."""
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


_QWEN3 = {"model_type": "qwen3", "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960}
_QWEN25 = {"model_type": "qwen2", "vocab_size": 151936, "max_position_embeddings": 32768}
_QWEN35 = {
    "model_type": "qwen3_5_text",
    "head_dim": 256,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def _config(
    base: dict[str, Any], hidden: int, layers: int, heads: int, kv_heads: int, mlp: int, tied: bool, **more: Any
) -> dict[str, Any]:  # fmt: skip
    return base | {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": mlp,
        "tie_word_embeddings": tied,
        **more,
    }


def _moe(experts: int, used: int, width: int) -> dict[str, Any]:
    moe = {"num_experts": experts, "num_experts_per_tok": used, "moe_intermediate_size": width}
    return {"model_type": "qwen3_moe", **moe}


KNOWN: dict[str, dict[str, Any]] = {
    "Qwen3-0.6B": _config(_QWEN3, 1024, 28, 16, 8, 3072, True),
    "Qwen3-1.7B": _config(_QWEN3, 2048, 28, 16, 8, 6144, True),
    "Qwen3-4B": _config(_QWEN3, 2560, 36, 32, 8, 9728, True),
    "Qwen3-4B-Instruct-2507": _config(_QWEN3, 2560, 36, 32, 8, 9728, True, max_position_embeddings=262144),
    "Qwen3-4B-Thinking-2507": _config(_QWEN3, 2560, 36, 32, 8, 9728, True, max_position_embeddings=262144),
    "Qwen3-8B": _config(_QWEN3, 4096, 36, 32, 8, 12288, False),
    # language models of these two; the vision tower adds 0.4 and 0.6 billion parameters
    "Qwen3-VL-4B": _config(_QWEN3, 2560, 36, 32, 8, 9728, True, max_position_embeddings=262144),
    "Qwen3-VL-8B": _config(_QWEN3, 4096, 36, 32, 8, 12288, False, max_position_embeddings=262144),
    "Qwen3-14B": _config(_QWEN3, 5120, 40, 40, 8, 17408, False),
    "Qwen3-32B": _config(_QWEN3, 5120, 64, 64, 8, 25600, False),
    "Qwen3-30B-A3B": _config(_QWEN3, 2048, 48, 32, 4, 6144, False, **_moe(128, 8, 768)),
    "Qwen3-235B-A22B": _config(_QWEN3, 4096, 94, 64, 4, 12288, False, **_moe(128, 8, 1536)),
    "Qwen3.5-4B": _config(_QWEN35, 2560, 32, 16, 4, 9216, True, linear_num_value_heads=32),
    "Qwen2.5-0.5B": _config(_QWEN25, 896, 24, 14, 2, 4864, True),
    "Qwen2.5-1.5B": _config(_QWEN25, 1536, 28, 12, 2, 8960, True),
    "Qwen2.5-3B": _config(_QWEN25, 2048, 36, 16, 2, 11008, True),
    "Qwen2.5-7B": _config(_QWEN25, 3584, 28, 28, 4, 18944, False, vocab_size=152064),
    "Qwen2.5-14B": _config(_QWEN25, 5120, 48, 40, 8, 13824, False, vocab_size=152064),
    "Qwen2.5-32B": _config(_QWEN25, 5120, 64, 40, 8, 27648, False, vocab_size=152064),
    "SmolLM2-135M": _config(
        {"model_type": "llama", "vocab_size": 49152, "max_position_embeddings": 8192},
        576,
        30,
        9,
        3,
        1536,
        True,
    ),
    "Llama-3.1-8B": _config(
        {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072},
        4096,
        32,
        32,
        8,
        14336,
        False,
    ),
}
"""config.json by name; Instruct and Base variants have the shape of their family member."""


def known_name(text: str) -> str | None:
    """Returns the known model for a name or path: the longest known name that is a prefix of its last part, or
    None."""
    last = text.rstrip("/").rsplit("/", 1)[-1].lower()
    fitting = [name for name in KNOWN if last == name.lower() or last.startswith(name.lower() + "-")]
    return max(fitting, key=len, default=None)


def main() -> int:
    try:
        config, _ = read_config(sys.argv[1])
    except (ConfigError, OSError):
        config = {}
    print(most_tokens(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
