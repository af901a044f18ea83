"""Random LoRA adapters of a model folder in PEFT's format, and the merged model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def save_adapter(
    folder: Path,
    model: Path,
    seed: int,
    rank: int = 4,
    layers: Sequence[str] = ALL,
    size: float = 0.2,
    **config: Any,
) -> Path:
    """Writes an adapter of the named linear layers; `size`: approximate size of its entries."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = torch.Generator().manual_seed(seed)
    weights = load_file(model / "model.safetensors")
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        if name.split(".")[-2] in layers:
            out, inside = weight.shape
            plain = f"base_model.model.{name.removesuffix('.weight')}"
            tensors[f"{plain}.lora_A.weight"] = size * torch.randn(rank, inside, generator=draws)
            tensors[f"{plain}.lora_B.weight"] = size * torch.randn(out, rank, generator=draws)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(model),
        "r": rank,
        "lora_alpha": 2.0 * rank,
    }
    (folder / "adapter_config.json").write_text(
        json.dumps(settings | {"target_modules": list(layers)} | config)
    )
    return folder


def merge(model: Any, folder: Path) -> Any:
    """Returns the transformers model with an adapter merged in place."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, down in tensors.items():
            if ".lora_A." in name:
                plain = name.removeprefix("base_model.model.").replace(".lora_A.", ".")
                up = tensors[name.replace(".lora_A.", ".lora_B.")]
                weights[plain] += (config["lora_alpha"] / config["r"]) * (up @ down).to(weights[plain].dtype)
    return model
