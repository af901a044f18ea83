"""Flags of the model's shape, which is defined by config.json; a launch script's flags must agree."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from claw_base.settings.declare import option
from slime.errors import ConfigError

SHAPE = {
    "num-layers": "num_hidden_layers",
    "hidden-size": "hidden_size",
    "ffn-hidden-size": "intermediate_size",
    "num-attention-heads": "num_attention_heads",
    "num-query-groups": "num_key_value_heads",
    "kv-channels": "head_dim",
    "vocab-size": "vocab_size",
    "norm-epsilon": "rms_norm_eps",
    "rotary-base": "rope_theta",
    "max-position-embeddings": "max_position_embeddings",
    "num-experts": "num_experts",
    "moe-router-topk": "num_experts_per_tok",
    "moe-ffn-hidden-size": "moe_intermediate_size",
}
SHAPE_SWITCHES = (
    "qk-layernorm",
    "swiglu",
    "untie-embeddings-and-output-weights",
    "add-qkv-bias",
    "disable-bias-linear",
    "group-query-attention",
    "use-rotary-position-embeddings",
)
SHAPE_WORDS = {"normalization": "RMSNorm", "position-embedding-type": "rope"}
MIXED_LAYERS = "moe-layer-freq"


def is_shape(name: str) -> bool:
    """Returns whether a flag (without dashes) has a value in config.json."""
    return name in SHAPE or name in SHAPE_WORDS or name == MIXED_LAYERS


def check_shape(folder: str, shape: dict[str, str]) -> None:
    """Compares flags of the model's shape with its config.json.

    Raises:
        ConfigError: they differ.
    """
    if not shape:
        return
    config: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text())
    config |= config.get("text_config") or {}
    config["rope_theta"] = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta")
    for name, value in shape.items():
        if name == MIXED_LAYERS and not same_layers(value, config):
            raise ConfigError(f"--{name} {value} contradicts {folder}/config.json; drop it")
        known = SHAPE_WORDS.get(name) or config.get(SHAPE.get(name, ""))
        if known is None or str(known) == value:
            continue
        if name in SHAPE and _number(value) == float(known):
            continue
        raise ConfigError(
            f"{option(name)} {value} contradicts {folder}/config.json, which has {known}; drop it"
        )


def same_layers(text: str, config: dict[str, Any]) -> bool:
    """Returns whether --moe-layer-freq, one 0 or 1 per layer, agrees with config.json about the layers with
    experts."""
    from slime.utils.decoders import has_experts  # imports torch, which the driver does not need

    defaults = {
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
        "num_experts": config.get("num_local_experts", 0),
    }
    model = SimpleNamespace(**(defaults | config))
    mixed = [int(has_experts(model, layer)) for layer in range(config["num_hidden_layers"])]
    try:
        return bool(json.loads(text) == mixed)
    except ValueError:
        return False


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def shape_table() -> list[tuple[str, str, str]]:
    """Returns (flag, accepted values, reason) of all flags, for documentation."""
    reason = "the shape of the model is taken from its config.json"
    valued = [(option(name), "from config.json", reason) for name in (*SHAPE, *SHAPE_WORDS, MIXED_LAYERS)]
    return valued + [(option(name), "as a switch", reason) for name in SHAPE_SWITCHES]
