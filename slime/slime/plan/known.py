"""Shapes of well-known models, as their config.json gives them, so that a plan needs no download."""

from __future__ import annotations

from typing import Any

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
    # The language models of these two; the vision tower, 0.4 and 0.6 billion parameters, comes on top.
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
    """The known model that a name or a path means: the longest name that begins its last part, or None."""
    last = text.rstrip("/").rsplit("/", 1)[-1].lower()
    fitting = [name for name in KNOWN if last == name.lower() or last.startswith(name.lower() + "-")]
    return max(fitting, key=len, default=None)
